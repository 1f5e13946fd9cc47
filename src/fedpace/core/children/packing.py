"""Objects for child processes, as bytes, also those that a script or a notebook defines itself.

A child process cannot import what a notebook has defined, and runs a script from its beginning to
get at what that defines. So whatever lies in `__main__` goes by value where cloudpickle is there: the
child then needs no `__main__` at all, and neither does one that is sent nothing of it. Only where
neither holds does it run the script once more, which must keep its runs under
`if __name__ == "__main__":`.
"""

import pickle
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import ModuleType
from typing import Any

from fedpace.core.errors import ConfigError, FedpaceError

MakePickler = Callable[[type[Any], BytesIO], Any]
"""Makes a pickler that derives from a class and writes to a file."""
_MAIN = "__main__"
_start = threading.Lock()


class CannotBeSent(ConfigError):
    """Something of the user's cannot go to another process."""


@dataclass(frozen=True, slots=True)
class PackedObject:
    """An object as bytes for `pickle.loads`. needs_main: a child must run the main script first."""

    data: bytes
    needs_main: bool


def pack(value: Any, what: str, instead: str, make: MakePickler | None = None) -> PackedObject:
    """The object as bytes; CannotBeSent in one line where it cannot be sent.

    what: it is, for the error; instead: what works in any case, such as workers=1; make: the pickler.
    """
    make = make or (lambda base, file: base(file, pickle.HIGHEST_PROTOCOL))
    error: Exception | None = None
    try:
        data = _dumped(make, pickle.Pickler, value)
        if _MAIN.encode() not in data:
            return PackedObject(data, needs_main=False)
    except FedpaceError:
        raise
    except (pickle.PicklingError, AttributeError, TypeError) as found:
        error = found
    by_value = _by_value()
    if by_value is not None:
        try:
            return PackedObject(_dumped(make, by_value, value), needs_main=False)
        except (pickle.PicklingError, AttributeError, TypeError) as found:
            raise CannotBeSent(
                f"{what} cannot be sent to processes: {found}; leave out what holds files, locks or "
                f"connections, or use {instead}"
            ) from found
    if error is not None:
        raise CannotBeSent(
            f"{what} cannot be sent to processes: {error}; define its functions and classes at module "
            f"level, install cloudpickle, or use {instead}"
        ) from error
    _check_main(what, instead)
    return PackedObject(data, needs_main=True)


@dataclass(frozen=True)
class OwnObjects:
    """What a user has made in Python for runs: a task, and policies by their import path.

    It goes to other processes as `pack` lets it.
    """

    task: Any = None
    kinds: Mapping[str, type[Any]] = field(default_factory=dict)

    def packed(self) -> PackedObject:
        return pack((self.task, dict(self.kinds)), "the task or a policy", "jobs=1")

    def __reduce__(self) -> tuple[Any, ...]:
        return _own_objects, (self.packed().data,)


def _own_objects(data: bytes) -> OwnObjects:
    return OwnObjects(*pickle.loads(data))


def _dumped(make: MakePickler, base: type[Any], value: Any) -> bytes:
    file = BytesIO()
    make(base, file).dump(value)
    return file.getvalue()


def _by_value() -> type[Any] | None:
    """The pickler that sends functions and classes of `__main__` by value, if it is installed."""
    try:
        found: type[Any] = import_module("cloudpickle").Pickler
    except ImportError:
        return None
    return found


def _check_main(what: str, instead: str) -> None:
    """CannotBeSent unless a child can run the main script without starting its runs."""
    path = getattr(sys.modules[_MAIN], "__file__", None)
    if path is None:
        raise CannotBeSent(
            f"{what} is defined in a notebook, which processes cannot import; put it into a module, "
            f"install cloudpickle, or use {instead}"
        )
    try:
        guarded = "__name__" in Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    if not guarded:
        raise CannotBeSent(
            f"{what} is defined in {path}, which every process would run from its beginning; keep its "
            f"runs under `if __name__ == '__main__':`, install cloudpickle, or use {instead}"
        )


@contextmanager
def without_main(hidden: bool) -> Iterator[None]:
    """Start child processes in this block, which do not run the main script if it is `hidden`."""
    if not hidden:
        yield
        return
    with _start:
        main = sys.modules[_MAIN]
        sys.modules[_MAIN] = ModuleType(_MAIN)
        try:
            yield
        finally:
            sys.modules[_MAIN] = main
