"""Array files: named arrays as plain bytes, as models and updates travel and lie on disk.

    b"FPA1" | uint32: bytes of the head | head (Manifest) | zeros | arrays, in order, without gaps

All numbers are little-endian; zeros fill up to the next multiple of 64 bytes. Nothing in such a file is
code, and nothing of it is believed before it is checked.
"""

import hashlib
import math
import struct
from collections.abc import Mapping
from mmap import mmap

import numpy as np
from google.protobuf.message import DecodeError

from fedpace.core.errors import PeerError
from fedpace.net import federation_pb2 as pb

MAGIC = b"FPA1"
TYPES = {"<f4": 4, "<f8": 8, "<i8": 8}
"""The types that an array can have, and bytes of a number."""
MOST_HEAD_BYTES = 64 << 10
MOST_ARRAYS = 64
MOST_NAME = 100
MOST_DIMENSIONS = 8
MOST_ARRAY_BYTES = 1 << 48
"""Of one array, dimensions of 0 left out: numpy can hold no shape far beyond."""

_START = struct.Struct("<4sI")
_ALIGN = 64


def digest(data: bytes | memoryview | mmap) -> bytes:
    """SHA-256."""
    return hashlib.sha256(data).digest()


def pack(arrays: Mapping[str, np.ndarray]) -> bytes:
    """The array file of these arrays, in their order."""
    manifest = pb.Manifest()
    for name, array in arrays.items():
        manifest.arrays.add(name=name, type=array.dtype.str, shape=array.shape)
    head = manifest.SerializeToString()
    try:
        _sizes(manifest)
        if len(head) > MOST_HEAD_BYTES:
            raise PeerError(f"its head has {len(head)} bytes; expected at most {MOST_HEAD_BYTES}")
    except PeerError as error:
        raise ValueError(f"these arrays cannot be packed: {error}") from None
    data = [np.ascontiguousarray(array).reshape(-1).view(np.uint8).data for array in arrays.values()]
    return b"".join([_START.pack(MAGIC, len(head)), head, bytes(_gap(len(head))), *data])


def unpack(data: bytes | memoryview | mmap, most_bytes: int) -> dict[str, np.ndarray]:
    """The arrays of a peer's file, as views of `data` that cannot be written to."""
    view = memoryview(data).toreadonly().cast("B")
    if len(view) > most_bytes:
        raise PeerError(f"an array file has {len(view)} bytes; expected at most {most_bytes}")
    try:
        manifest, start = _head(view)
        sizes = _sizes(manifest)
        if start + sum(sizes) != len(view):
            raise PeerError(
                f"it has {len(view) - start} bytes of arrays; its head tells of {sum(sizes)}"
            )
    except PeerError as error:
        raise PeerError(f"an array file of {len(view)} bytes cannot be used: {error}") from None
    arrays = {}
    for array, size in zip(manifest.arrays, sizes, strict=True):
        arrays[array.name] = np.ndarray(tuple(array.shape), array.type, view, start)
        start += size
    return arrays


def _head(view: memoryview) -> tuple[pb.Manifest, int]:
    """The head, and where the arrays begin."""
    if len(view) < _START.size:
        raise PeerError(f"it is shorter than the {_START.size} bytes that every one begins with")
    magic, length = _START.unpack(view[: _START.size])
    if magic != MAGIC:
        raise PeerError(f"it begins with {magic!r}; expected {MAGIC!r}")
    if length > MOST_HEAD_BYTES:
        raise PeerError(f"its head has {length} bytes; expected at most {MOST_HEAD_BYTES}")
    end = _START.size + length
    start = end + _gap(length)
    if start > len(view):
        raise PeerError(f"it ends within its head, which has {length} bytes")
    if any(view[end:start]):
        raise PeerError("there is something between its head and its arrays; expected zeros")
    try:
        return pb.Manifest.FromString(bytes(view[_START.size : end])), start
    except DecodeError as error:
        raise PeerError(f"its head cannot be read: {error}") from None


def _gap(length: int) -> int:
    """Zeros after a head of this many bytes."""
    return -(_START.size + length) % _ALIGN


def _sizes(manifest: pb.Manifest) -> list[int]:
    """Bytes of each array; PeerError if there can be no such arrays."""
    if len(manifest.arrays) > MOST_ARRAYS:
        raise PeerError(f"it has {len(manifest.arrays)} arrays; expected at most {MOST_ARRAYS}")
    names, sizes = set[str](), list[int]()
    for array in manifest.arrays:
        name = array.name
        if not 1 <= len(name) <= MOST_NAME:
            raise PeerError(f"a name has {len(name)} characters; expected 1 to {MOST_NAME}")
        if name in names:
            raise PeerError(f"two arrays have the name {name!r}; expected different names")
        names.add(name)
        if array.type not in TYPES:
            raise PeerError(
                f"array {name!r} has type {array.type[:20]!r}; expected one of {', '.join(TYPES)}"
            )
        if len(array.shape) > MOST_DIMENSIONS:
            raise PeerError(
                f"array {name!r} has {len(array.shape)} dimensions; expected at most {MOST_DIMENSIONS}"
            )
        size = TYPES[array.type] * math.prod(length for length in array.shape if length)
        if size > MOST_ARRAY_BYTES:
            raise PeerError(
                f"array {name!r} has the shape {tuple(array.shape)}: more than any array can have"
            )
        sizes.append(0 if 0 in array.shape else size)
    return sizes
