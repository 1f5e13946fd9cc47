"""Updates on the server's disk: while they arrive, and from then on until they are used.

An upload is three files: TASK.json says what was offered, TASK.part is what has come of it, and
TASK.safetensors is all of it, checked. They are all that is known of it, so that a server which was
killed goes on where it was. Every byte in TASK.part has passed its check, even where writing it broke.
"""

import hashlib
import json
import os
import re
import threading
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fedpace.core.errors import PeerError

WHOLE = "safetensors"
_KINDS = (WHOLE, "part", "json")


class PieceError(PeerError):
    """A piece that was damaged or is not the next one; what has come is kept, it can be sent again."""


class DigestError(PeerError):
    """An upload that is complete and not what was offered; it was deleted."""


class FullError(PeerError):
    """No room for another upload until others are used up."""


@dataclass
class Upload:
    """State of an upload. size, sha256: as offered; there: bytes that came; complete: all, and checked.

    hash: of the first `hashed` bytes; behind `there` where an earlier process took the others.
    """

    size: int
    sha256: bytes
    there: int = 0
    complete: bool = False
    hashed: int = 0
    hash: "hashlib._Hash" = field(default_factory=hashlib.sha256, repr=False, compare=False)

    @property
    def missing(self) -> int:
        return self.size - self.there


class Spool:
    """The uploads in a folder, by task.

    most_bytes: of one upload; total_bytes: of all, each counted in full once it is offered. Calls may
    come from any thread; those for one task wait for each other, and for nothing else. A full or broken
    disk is an OSError: what had come stays, and the call can be made again.
    """

    def __init__(self, folder: Path, most_bytes: int, total_bytes: int | None = None) -> None:
        self.folder, self.most_bytes, self.total_bytes = folder, most_bytes, total_bytes
        self._changed = threading.Condition()
        self._busy: set[int] = set()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._uploads = self._found()

    @property
    def used_bytes(self) -> int:
        """Bytes of all uploads, each counted in full."""
        with self._changed:
            return sum(upload.size for upload in self._uploads.values())

    @property
    def half_full(self) -> bool:
        return self.total_bytes is not None and 2 * self.used_bytes > self.total_bytes

    def offer(self, task: int, size: int, sha256: bytes) -> int:
        """Begin or resume an upload; how many bytes are there. Another one of the task is given up."""
        if not 1 <= size <= self.most_bytes or len(sha256) != hashlib.sha256().digest_size:
            raise PeerError(
                f"the update of task {task} has {size} bytes and a digest of {len(sha256)}; "
                f"expected 1 to {self.most_bytes} bytes and a SHA-256"
            )
        with self._hold(task):
            old = self._uploads.get(task)
            if old is not None and (old.size, old.sha256) == (size, sha256):
                return old.there
            with self._changed:  # no other offer comes between looking for room and taking it
                used = self.used_bytes - (old.size if old is not None else 0)
                if self.total_bytes is not None and used + size > self.total_bytes:
                    raise FullError(
                        f"there is no room for the {size} bytes of task {task}'s update: {used} of "
                        f"{self.total_bytes} are taken; try again when updates have been used"
                    )
                self._uploads[task] = Upload(size, sha256)
            try:
                self._begin(task, self._uploads[task])
            except BaseException:
                with self._changed:
                    del self._uploads[task]
                raise
            return 0

    def append(self, task: int, offset: int, data: bytes | memoryview, crc: int) -> int:
        """Write the next piece of an upload; return how many bytes are still missing."""
        with self._hold(task):
            upload = self.offered(task)
            if offset != upload.there:
                raise PieceError(
                    f"a piece of task {task}'s update begins at {offset}; expected {upload.there}: "
                    "ask with an offer where to go on"
                )
            if offset + len(data) > upload.size:
                raise PeerError(
                    f"the update of task {task} has {offset + len(data)} bytes or more; "
                    f"{upload.size} were offered"
                )
            if zlib.crc32(data) != crc:
                raise PieceError(
                    f"the piece at {offset} of task {task}'s update was damaged: its CRC-32 is "
                    f"{zlib.crc32(data)}, and should be {crc}; send it again"
                )
            _write(self._file(task, "part"), offset, data)
            upload.there += len(data)
            if upload.hashed == offset:
                upload.hash.update(data)
                upload.hashed = upload.there
            return upload.missing

    def finish(self, task: int) -> Path:
        """Check the whole upload and keep it; its path. DigestError if it is not what was offered."""
        with self._hold(task):
            upload, path, part = (self.offered(task), self._file(task, WHOLE), self._file(task, "part"))
            if upload.complete:
                return path
            if upload.missing:
                raise PeerError(
                    f"the update of task {task} ends after {upload.there} of {upload.size} bytes"
                )
            _sync(part)
            sha256 = upload.hash.digest() if upload.hashed == upload.size else _digest(part)
            if sha256 != upload.sha256:
                self._delete(task)
                raise DigestError(
                    f"the update of task {task} is not what was offered: its SHA-256 is "
                    f"{sha256.hex()}, and should be {upload.sha256.hex()}; send it anew"
                )
            os.replace(part, path)
            upload.complete = True
            _sync(self.folder)
            return path

    def offered(self, task: int) -> Upload:
        """The state of a task's upload, to look at."""
        upload = self._uploads.get(task)
        if upload is None:
            raise PeerError(f"there is no offer for the update of task {task}; offer it first")
        return upload

    def path(self, task: int) -> Path | None:
        """The path of a whole upload, once it is finished."""
        upload = self._uploads.get(task)
        return self._file(task, WHOLE) if upload is not None and upload.complete else None

    def tasks(self) -> set[int]:
        """Tasks whose uploads are complete."""
        with self._changed:
            return {task for task, upload in self._uploads.items() if upload.complete}

    def forget(self, task: int) -> None:
        """Delete a task's upload; none is fine."""
        with self._hold(task):
            self._delete(task)

    def others(self, tasks: Collection[int]) -> set[int]:
        """Tasks that have an upload, complete or not, and are none of these."""
        with self._changed:
            return set(self._uploads).difference(tasks)

    def keep_only(self, tasks: Collection[int]) -> None:
        """Delete the uploads of all other tasks, complete or not."""
        for task in self.others(tasks):
            self.forget(task)

    @contextmanager
    def _hold(self, task: int) -> Iterator[None]:
        """Let one call at a time work on this task; the lock is free meanwhile."""
        with self._changed:
            self._changed.wait_for(lambda: task not in self._busy)
            self._busy.add(task)
        try:
            yield
        finally:
            with self._changed:
                self._busy.remove(task)
                self._changed.notify_all()

    def _file(self, task: int, kind: str) -> Path:
        return self.folder / f"{task}.{kind}"

    def _begin(self, task: int, upload: Upload) -> None:
        """Put a new upload's files there. The old data goes first: it must not meet the new offer."""
        self._file(task, WHOLE).unlink(missing_ok=True)
        self._file(task, "part").unlink(missing_ok=True)
        # Half an offer is read as none, so that it need not be written whole.
        offer = json.dumps({"size": upload.size, "sha256": upload.sha256.hex()})
        self._file(task, "json").touch(0o600)
        self._file(task, "json").write_text(offer, "utf-8")
        self._file(task, "part").touch(0o600)

    def _delete(self, task: int) -> None:
        """Remove an upload from disk, then from what is known; its offer goes last."""
        for kind in _KINDS:
            self._file(task, kind).unlink(missing_ok=True)
        with self._changed:
            self._uploads.pop(task, None)

    def _found(self) -> dict[int, Upload]:
        """The uploads that an earlier process has left. Other files are deleted."""
        uploads = dict[int, Upload]()
        names = [re.fullmatch(r"(0|[1-9]\d*)\.(\w+)", path.name) for path in self.folder.iterdir()]
        for task in {int(name[1]) for name in names if name and name[2] in _KINDS}:
            upload = self._load(task)
            if upload is not None:
                uploads[task] = upload
            stale = _KINDS if upload is None else ("part",) if upload.complete else ()
            for kind in stale:
                self._file(task, kind).unlink(missing_ok=True)
        return uploads

    def _load(self, task: int) -> Upload | None:
        path, part = self._file(task, WHOLE), self._file(task, "part")
        try:
            offer = json.loads(self._file(task, "json").read_text("utf-8"))
            upload = Upload(int(offer["size"]), bytes.fromhex(offer["sha256"]))
        except (FileNotFoundError, ValueError, TypeError, KeyError):
            upload = None  # the power went before it was on disk
        if path.exists():
            if upload is None:
                upload = Upload(path.stat().st_size, _digest(path))
            upload.there, upload.complete = upload.size, True
        elif upload is not None:
            part.touch(0o600)
            upload.there = part.stat().st_size
        return upload if upload is not None and upload.there <= upload.size else None


def _write(path: Path, offset: int, data: bytes | memoryview) -> None:
    """Write behind the first `offset` bytes, all or nothing."""
    file = os.open(path, os.O_WRONLY)
    try:
        os.lseek(file, offset, os.SEEK_SET)
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
    except BaseException:
        with suppress(OSError):
            os.ftruncate(file, offset)
        raise
    finally:
        os.close(file)


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
