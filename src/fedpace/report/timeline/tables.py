"""Tables that grow record by record while a journal is read, and are numpy arrays afterwards.

A record is packed by `struct` into a bytearray: one call a message, and a tenth of the memory that
Python objects would take.
"""

import struct
from typing import Any

import numpy as np

_FORMATS = {"q": "<i8", "i": "<i4", "d": "<f8", "B": "u1"}


class RecordTable:
    """Records of one kind. fields: names with the struct format of each, such as {"at": "d"}.

    `put(pack(...))` appends one; both are attributes, since they are called for every message.
    """

    def __init__(self, **fields: str) -> None:
        self._dtype = np.dtype([(name, _FORMATS[kind]) for name, kind in fields.items()])
        self._data = bytearray()
        self.pack = struct.Struct("<" + "".join(fields.values())).pack
        self.put = self._data.extend

    def __len__(self) -> int:
        return len(self._data) // self._dtype.itemsize

    def add(self, *values: Any) -> int:
        """Append a record; its row."""
        self.put(self.pack(*values))
        return len(self) - 1

    def array(self) -> np.ndarray:
        """The records so far, by the names of their fields; while it is held nothing can be added."""
        return np.frombuffer(self._data, dtype=self._dtype)
