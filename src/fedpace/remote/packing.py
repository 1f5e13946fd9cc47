"""Array files: named arrays in the format of safetensors, as models and updates travel and are stored.

    uint64: bytes of the head | head: JSON, filled up with spaces | arrays, without gaps

All numbers are little-endian; the first array begins at a multiple of 64 bytes. Nothing in such a file
is code, and nothing of it is believed before it is checked. Three of the format's types are taken, and
no metadata. Files are read and written here, because the safetensors library copies every array once
more (docs/decisions/0022); tests hold both against it.
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from itertools import pairwise
from mmap import mmap
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
from msgspec import Meta

from fedpace.core.errors import PeerError

TYPES: dict[str, np.dtype[Any]] = {
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "I64": np.dtype("<i8"),
}
"""The types that an array can have."""
MOST_HEAD_BYTES = 64 << 10
MOST_ARRAYS = 64
MOST_NAME = 100
MOST_DIMENSIONS = 8
MOST_ARRAY_BYTES = 1 << 48
"""Of one array, dimensions of 0 left out: numpy can hold no shape far beyond."""

_LENGTH = struct.Struct("<Q")
_ALIGN = 64

_Size = Annotated[int, Meta(ge=0, le=MOST_ARRAY_BYTES)]


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One array in a head. data_offsets: its first byte and the one behind its last."""

    dtype: Literal["F32", "F64", "I64"]
    shape: Annotated[tuple[_Size, ...], Meta(max_length=MOST_DIMENSIONS)]
    data_offsets: tuple[int, int]

    @property
    def size(self) -> int:
        """Bytes of the array; PeerError if there can be no such array."""
        size = TYPES[self.dtype].itemsize * math.prod(length for length in self.shape if length)
        if size > MOST_ARRAY_BYTES:
            raise PeerError(f"an array has the shape {self.shape}: more than any array can have")
        return 0 if 0 in self.shape else size


_Entries = dict[Annotated[str, Meta(min_length=1, max_length=MOST_NAME)], _Entry]


def digest(data: bytes | memoryview | mmap) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The array file of these arrays, in their order."""
    kinds = {dtype.str: kind for kind, dtype in TYPES.items()}
    entries, end = dict[str, Any](), 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        kind = kinds.get(array.dtype.str, array.dtype.str)
        entries[name] = {"dtype": kind, "shape": array.shape, "data_offsets": (start, end)}
    head = msgspec.json.encode(entries)
    head += b" " * (-(_LENGTH.size + len(head)) % _ALIGN)
    try:
        _check(_read_head(head), end)
    except PeerError as error:
        raise ValueError(f"these arrays cannot be packed: {error}") from None
    data = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values()]
    return b"".join([_LENGTH.pack(len(head)), head, *data])


def unpack(data: bytes | memoryview | mmap, most_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of a peer's file, as views of `data` that cannot be written to."""
    view = memoryview(data).toreadonly().cast("B")
    if len(view) > most_bytes:
        raise PeerError(f"an array file has {len(view)} bytes; expected at most {most_bytes}")
    try:
        if len(view) < _LENGTH.size:
            raise PeerError(f"it is shorter than the {_LENGTH.size} bytes that every one begins with")
        (length,) = _LENGTH.unpack(view[: _LENGTH.size])
        start = _LENGTH.size + length
        if start > len(view):
            raise PeerError(f"it ends within its head, which has {length} bytes")
        entries = _read_head(view[_LENGTH.size : start])
        _check(entries, len(view) - start)
    except PeerError as error:
        raise PeerError(f"an array file of {len(view)} bytes cannot be used: {error}") from None
    return {
        name: np.ndarray(entry.shape, TYPES[entry.dtype], view, start + entry.data_offsets[0])
        for name, entry in entries.items()
    }


def _read_head(head: bytes | memoryview) -> _Entries:
    """The entries of a head, by name; PeerError where it is none."""
    if len(head) > MOST_HEAD_BYTES:
        raise PeerError(f"its head has {len(head)} bytes; expected at most {MOST_HEAD_BYTES}")
    if head[:1] != b"{":
        raise PeerError(f"its head begins with {bytes(head[:1])!r}; expected {{")
    try:
        entries = msgspec.json.decode(head, type=_Entries)
        json.loads(
            bytes(head), object_pairs_hook=_unique
        )  # the other one takes the last of equal names
    except (ValueError, RecursionError) as error:
        raise PeerError(f"its head cannot be read: {error}") from None
    if len(entries) > MOST_ARRAYS:
        raise PeerError(f"it has {len(entries)} arrays; expected at most {MOST_ARRAYS}")
    return entries


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise PeerError(f"two of {len(pairs)} names are equal; expected different names")
    return found


def _check(entries: _Entries, length: int) -> None:
    """PeerError unless the arrays fill `length` bytes, one behind the other."""
    spans = sorted(entry.data_offsets for entry in entries.values())
    for before, after in pairwise([(0, 0), *spans, (length, length)]):
        if before[1] != after[0]:
            raise PeerError(f"its arrays end at {before[1]} and go on at {after[0]}; expected no gaps")
    for name, entry in entries.items():
        first, end = entry.data_offsets
        if end - first != entry.size:
            raise PeerError(f"array {name!r} has {end - first} bytes; its shape tells of {entry.size}")
