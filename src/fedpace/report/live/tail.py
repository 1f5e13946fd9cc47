"""The lines of a journal that grows, each read once.

Nothing is written and nothing locked. A run that is resumed cuts its journal and writes on, one that is
extended or overwritten has another file: then all of it is read anew. The file that is renamed when
its run is over is the same one.
"""

import os
from pathlib import Path
from typing import IO, NamedTuple

from fedpace.core.journal import JOURNAL, part_path

PIECE_BYTES = 4 << 20
"""Read at a time; a line that is longer is read in one."""
_MARK_BYTES = 256
"""Bytes before the place that was reached, which must still be there."""


class NewLines(NamedTuple):
    """Lines that have come, whole ones only. anew: they are the first of another journal."""

    lines: list[bytes]
    anew: bool


class JournalTail:
    """Reads what comes to the journal in a run's folder, finished or not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file: tuple[int, int] | None = None
        self._end, self._mark = 0, b""

    @property
    def size(self) -> int:
        """Bytes of the journal that have been read."""
        return self._end

    def read(self, piece: int = PIECE_BYTES) -> NewLines:
        """The next lines, a few megabytes of them at most; none where nothing has come."""
        found = open_journal(self.folder)
        if found is None:
            return NewLines([], anew=False)
        with found as file:
            about = os.fstat(file.fileno())
            same = self._file == (about.st_dev, about.st_ino) and about.st_size >= self._end
            if same:
                file.seek(self._end - len(self._mark))
                same = file.read(len(self._mark)) == self._mark
            if not same:
                self._file, self._end, self._mark = (about.st_dev, about.st_ino), 0, b""
                file.seek(0)
            data = file.read(piece)
            while data and b"\n" not in data and (more := file.read(len(data))):
                data += more
        whole = data[: data.rfind(b"\n") + 1]
        self._end += len(whole)
        self._mark = (self._mark + whole)[-_MARK_BYTES:]
        return NewLines(whole.splitlines(keepends=True), anew=not same)


def open_journal(folder: Path) -> IO[bytes] | None:
    """The journal of a folder, to be read: of a run that goes on, or is being extended, the part."""
    whole = folder / JOURNAL
    for path in (part_path(whole), whole, part_path(whole)):  # it may be renamed in between
        try:
            return path.open("rb")
        except FileNotFoundError:
            continue
    return None
