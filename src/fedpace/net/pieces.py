"""Pieces of array files on the wire: a head of fixed size, and behind it the data as they are.

Not protobuf, which copies data whenever its buffer grows: writing a piece took it ten times as long.
"""

import struct
import zlib
from dataclasses import dataclass

from fedpace.core.errors import PeerError

_HEAD = struct.Struct("<QQIQ32s")
_NO_DIGEST = bytes(32)


class Unreadable(PeerError):
    """Bytes that are no message."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a task's model or update. offset: of its first byte; crc: CRC-32 of its data.

    size, sha256: of the whole file, told by the first piece of a download, and of an upload that was
    not offered before; 0 and empty in all others.
    """

    task: int
    offset: int
    data: bytes | memoryview
    crc: int
    size: int = 0
    sha256: bytes = b""

    @classmethod
    def of(
        cls, task: int, offset: int, data: bytes | memoryview, size: int = 0, sha256: bytes = b""
    ) -> "Piece":
        """A piece with its checksum."""
        return cls(task, offset, data, zlib.crc32(data), size, sha256)

    def encode(self) -> bytes:
        head = _HEAD.pack(self.task, self.offset, self.crc, self.size, self.sha256 or _NO_DIGEST)
        return b"".join((head, self.data))

    @classmethod
    def decode(cls, frame: bytes) -> "Piece":
        """The piece in a frame, whose data it shares; Unreadable where there is none."""
        if len(frame) < _HEAD.size:
            raise Unreadable(f"{len(frame)} bytes are no Piece; its head alone has {_HEAD.size}")
        task, offset, crc, size, sha256 = _HEAD.unpack_from(frame)
        return cls(task, offset, memoryview(frame)[_HEAD.size :], crc, size, sha256 if size else b"")
