"""Snapshots in generations, with sums: a damaged one falls back to the one before.

The newest is `snapshot.pt`, those before it `snapshot.1.pt` and `snapshot.2.pt`. `snapshots.json` has
the SHA-256 of all of them, and of one that is about to take its place: whenever the process ends, each
file that is whole has its sum there.
"""

import hashlib
import json
import logging
import os
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedpace.core.errors import FedpaceError, JournalError
from fedpace.core.host import write_whole

log = logging.getLogger("fedpace.server")

KEPT = 3
"""Generations that are kept."""
_SUMS = "snapshots.json"


class SnapshotFiles:
    """The generations of a run's snapshots. path: of the newest."""

    def __init__(self, path: Path) -> None:
        self.path = path
        older = (path.with_name(f"{path.stem}.{age}{path.suffix}") for age in range(1, KEPT))
        self.generations = (path, *older)
        self._fresh = path.with_name(f"new.{path.name}")
        self._sums = path.with_name(_SUMS)
        self._damaged = path.with_name(f"{path.name}.damaged")

    def save(self, values: Any) -> None:
        """Write a snapshot; all before it become older by one, and the oldest is deleted."""
        from fedpace.learn import files  # torch takes seconds to import, and may not be needed

        files.save(self._fresh, values)
        try:
            self._add_sum(_digest(self._fresh))
        except OSError as error:
            self._fresh.unlink(missing_ok=True)
            raise FedpaceError(
                f"{self._sums} could not be written: {error}; free some space and resume"
            ) from error
        for younger, older in reversed(list(pairwise(self.generations))):
            with suppress(FileNotFoundError):
                os.replace(younger, older)
        os.replace(self._fresh, self.path)

    def load(self) -> Any:
        """The newest snapshot that is whole; None where there is none at all.

        Damaged ones are told of and deleted, but for the newest of them, which is put aside.
        JournalError where none is whole.
        """
        damaged: list[JournalError] = []
        for path in self._found():
            try:
                values = self._read(path)
            except JournalError as error:
                damaged.append(error)
                continue
            for found, one in reversed(list(zip(self._found(), damaged, strict=False))):
                said = str(one).partition("; delete")[0]
                log.warning("%s; going on from %s, the one before", said, path.name)
                os.replace(found, self._damaged)
            return values
        if damaged:
            raise damaged[0]
        return None

    @property
    def count(self) -> int:
        """Generations that are there, whole or not."""
        return len(self._found())

    def keep_newest(self) -> None:
        """Delete the older generations: the run is over."""
        for path in (*self.generations[1:], self._fresh, self._damaged):
            path.unlink(missing_ok=True)

    def delete(self) -> None:
        self.keep_newest()
        for path in (self.path, self._sums):
            path.unlink(missing_ok=True)

    def all_files(self) -> tuple[Path, ...]:
        """Every file that may be here."""
        return (*self.generations, self._fresh, self._sums, self._damaged)

    def _found(self) -> list[Path]:
        return [path for path in self.generations if path.exists()]

    def _add_sum(self, newest: str) -> None:
        known = self._known_sums()
        if known is None:
            known = [_digest(path) for path in self._found()]
        sums = [newest, *known][: KEPT + 1]
        write_whole(self._sums, json.dumps({"sha256": sums}), 0o600)

    def _read(self, path: Path) -> Any:
        from fedpace.learn import files

        sums = self._known_sums()
        if sums is not None and _digest(path) not in sums:
            raise JournalError(
                f"{path} cannot be read: its SHA-256 is none of those in {_SUMS}; delete it to start "
                "from the beginning"
            )
        return files.load(path)

    def _known_sums(self) -> list[str] | None:
        """None where they are not known: of an earlier version, or damaged."""
        try:
            return [str(one) for one in json.loads(self._sums.read_bytes())["sha256"]]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            log.warning("%s is damaged (%s); snapshots are read without sums", self._sums, error)
            return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
