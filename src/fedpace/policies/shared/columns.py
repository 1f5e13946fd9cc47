"""Records of clients as numbers in arrays instead of an object a client."""

from array import array
from collections.abc import Iterator, MutableMapping
from typing import Any, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

T = TypeVar("T")
_CODES: dict[type[Any], str] = {int: "q", float: "d"}


class Columns(MutableMapping[int, T]):
    """As a dict from client to a record, a class of int and float fields; in order of clients.

    It takes 8 bytes a number and one a client. Clients are numbered from 0 without large gaps. A
    record is made when it is asked for: to change one, put another in its place.
    """

    def __init__(self, kind: type[T]) -> None:
        hints = get_type_hints(kind)
        self._kind, self._names = kind, tuple(hints)
        self._columns = tuple(array(_CODES[hints[name]]) for name in self._names)
        self._known = bytearray()
        self._count = 0

    def __getitem__(self, client: int) -> T:
        if client not in self:
            raise KeyError(client)
        return self._kind(*[column[client] for column in self._columns])

    def __setitem__(self, client: int, record: T) -> None:
        missing = client + 1 - len(self._known)
        if missing > 0:
            self._known.extend(bytes(missing))
            for column in self._columns:
                column.frombytes(bytes(8 * missing))
        self._count += not self._known[client]
        self._known[client] = 1
        for name, column in zip(self._names, self._columns, strict=True):
            column[client] = getattr(record, name)

    def __delitem__(self, client: int) -> None:
        if client not in self:
            raise KeyError(client)
        self._known[client] = 0
        self._count -= 1

    def __contains__(self, client: object) -> bool:
        return isinstance(client, int) and 0 <= client < len(self._known) and self._known[client] == 1

    def __iter__(self) -> Iterator[int]:
        return (client for client, known in enumerate(self._known) if known)

    def __len__(self) -> int:
        return self._count

    def column(self, name: str) -> npt.NDArray[Any]:
        """One number of everybody who is in it, in order of clients."""
        column = self._columns[self._names.index(name)]
        known = np.frombuffer(self._known, dtype=np.bool_)
        return np.frombuffer(column, dtype=column.typecode)[known]
