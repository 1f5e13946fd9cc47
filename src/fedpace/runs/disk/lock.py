"""The lock of a folder: one process at a time writes there, and its death opens the lock.

The system holds the lock (flock), not the file: a file that a killed process has left locks nobody out.
What stands in the file is for people: who it is. Reading a run needs no lock.
"""

import errno
import json
import logging
import os
import sys
import time
from pathlib import Path
from typing import IO, Any, Self

from fedpace.core.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("fedpace.server")

LOCK = ".lock"
_BUSY = (errno.EWOULDBLOCK, errno.EACCES)
_MOST_LETTERS = 200


class FolderLock:
    """Holds the lock of a folder from its making until `release`, or the end of this process.

    ConfigError, with the process that has it, where another one does.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOCK
        self._file: IO[str] | None = None
        while self._file is None:
            # Whose file was deleted between opening and locking it has locked nothing.
            self._file = self._try()
        self._file.truncate(0)
        self._file.write(json.dumps(_about_us()))
        self._file.flush()

    def _try(self) -> IO[str] | None:
        file = open(  # noqa: SIM115
            self._path, "a+", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, 0o600)
        )
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _BUSY:
                holder = _describe(file)
                file.close()
                raise ConfigError(
                    f"{self._path.parent} is in use by {holder}; wait until it has ended, stop it, or "
                    "use another folder"
                ) from None
            log.warning("%s cannot be locked: %s; see that no other process uses it", self._path, error)
        try:
            if os.fstat(file.fileno()).st_ino == self._path.stat().st_ino:
                return file
        except FileNotFoundError:
            pass
        file.close()
        return None

    def release(self) -> None:
        if self._file is not None:
            self._path.unlink(missing_ok=True)  # while it is ours
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def _about_us() -> dict[str, Any]:
    words = [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv else ["python"]
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return {"pid": os.getpid(), "command": " ".join(words)[:_MOST_LETTERS], "since": since}


def _describe(file: IO[str]) -> str:
    """The process that a lock's file names."""
    try:
        file.seek(0)
        found = json.loads(file.read())
        return f"process {found['pid']} ({found['command']}), since {found['since']}"
    except (ValueError, KeyError, TypeError):  # it has the lock, and has not written yet
        return "another process"
