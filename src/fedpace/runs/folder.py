"""The folder of a run: names of its files, and whether a run may begin there, go on or be extended."""

import json
import logging
import uuid
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from shutil import copyfileobj, rmtree
from typing import Self

from fedpace.core import codec
from fedpace.core.errors import ConfigError
from fedpace.core.host import open_whole, write_whole
from fedpace.core.journal import JOURNAL, Header, part_path, read
from fedpace.learn.phases import TIMINGS
from fedpace.report.bias.data import CLIENT_DATA
from fedpace.runs.disk.changes import Difference, check_changes, with_ends
from fedpace.runs.disk.generations import SnapshotFiles
from fedpace.runs.disk.lock import FolderLock

log = logging.getLogger("fedpace.server")


def check_folder_given(out: str | Path | None, resume: bool, overwrite: bool) -> None:
    """Refuse to go on with runs, or to delete them, where no folder says which."""
    if out is None and (resume or overwrite):
        name = "resume=True" if resume else "overwrite=True"
        raise ConfigError(f"{name} is about runs in a folder; give it, as out='runs/mine'")


class RunFolder:
    """A folder for one run, whatever its clock. A finished run keeps its journal, its weights and, so
    that it can be extended, its last snapshot.

    part: the journal until the run is over; snapshot: the models now and then (snapshots: and those
    before); spool: updates that
    have come over a network; clients: their names, by number; run_id: by which clients know the run.
    Only its owner may read any of it. Used as a context: its end releases the folder.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = path = Path(folder)
        self.journal, self.weights = path / JOURNAL, path / "weights.pt"
        self.timings, self.client_data = path / TIMINGS, path / CLIENT_DATA
        self.part, self.snapshot = part_path(self.journal), path / "snapshot.pt"
        self.snapshots = SnapshotFiles(self.snapshot)
        self.spool, self.clients, self.run_id = path / "spool", path / "clients.json", path / "run.json"
        self.changes: tuple[Difference, ...] = ()
        self._lock: FolderLock | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def is_over(self) -> bool:
        """True where a finished run is here, and is not being extended."""
        return self.journal.exists() and not self.part.exists()

    def check_free(self) -> None:
        """Refuse a folder that holds a run, finished or not."""
        if self.journal.exists() or self.part.exists():
            raise ConfigError(
                f"{self.path} holds a run already; use resume=True, overwrite=True or another folder"
            )

    def header(self) -> Header | None:
        """The header of the run that is here; None where there is none."""
        found = self._found()
        return None if found is None or (found == self.part and self._is_unborn()) else read(found)[0]

    def open(self, header: Header, resume: bool, overwrite: bool, fixed: Collection[str] = ()) -> bool:
        """Make room for the run of this header; True: it is to be run or gone on with, not over.

        The folder is locked first, until `release`: another process writes there, or none does.
        A run that is there may have had other operational settings, and other ends, as long as it has
        not come further than the new ones; it is over no more then. `changes` are those that differ.
        fixed: ends that the policy plans with.
        """
        if self.path.exists() and not self.path.is_dir():
            raise ConfigError(f"{self.path} is a file; give a folder for the results")
        self._take()
        try:
            return self._make_room(header, resume, overwrite, fixed)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Let other processes write here; once more is fine."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _take(self) -> None:
        """Lock the folder, and keep others than its owner out of it."""
        if self._lock is None:
            made = not self.path.exists()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self.path)
            if made or self._found() is not None:  # a folder of something else stays as it is
                self.path.chmod(0o700)
            self._make_private()

    def _make_private(self) -> None:
        """Let nobody but their owner read the files that an earlier version has left."""
        files = (self.part, self.journal, self.weights, self.clients, self.run_id)
        for path in (*files, *self.snapshots.all_files(), *self.spool.glob("*")):
            with suppress(FileNotFoundError):
                path.chmod(0o600)
        with suppress(FileNotFoundError):
            self.spool.chmod(0o700)

    def _make_room(self, header: Header, resume: bool, overwrite: bool, fixed: Collection[str]) -> bool:
        if overwrite:
            self._delete()
        elif not resume:
            self.check_free()
        self._drop_unborn()
        found = self._found()
        if found is None:
            self.drop_helpers()
        else:
            self.changes = tuple(check_changes(found, header, fixed))
            if any(one.is_end for one in self.changes):
                self._extend(found, header)
        return not self.is_over

    def delete_run(self) -> None:
        """Delete the run that is here, if there is one that nobody is writing."""
        if self._found() is not None:
            self._take()
            try:
                self._delete()
                self.drop_helpers()
            finally:
                self.release()

    def _delete(self) -> None:
        rmtree(self.spool, ignore_errors=True)
        helpers = self.clients, self.timings, self.client_data
        for path in (self.part, self.journal, self.weights, *helpers):
            path.unlink(missing_ok=True)

    def drop_helpers(self) -> None:
        """Delete what only helps to go on with a run."""
        self.snapshots.delete()
        self.run_id.unlink(missing_ok=True)

    def name_run(self) -> str:
        """The name of the run, by which clients know it again after a restart of the server."""
        with suppress(FileNotFoundError):
            try:
                return str(json.loads(self.run_id.read_bytes())["run"])
            except (ValueError, KeyError, TypeError) as error:
                log.warning(
                    "%s is damaged (%s): the run gets another name, clients that took part join anew",
                    self.run_id,
                    error,
                )
        name = uuid.uuid4().hex
        write_whole(self.run_id, json.dumps({"run": name}), 0o600)
        return name

    def _found(self) -> Path | None:
        """The journal that is here; while a finished run is extended, that which grows."""
        return next((path for path in (self.part, self.journal) if path.exists()), None)

    def _drop_unborn(self) -> None:
        """Delete a journal of which not even the first line was written: nothing had begun."""
        if self._is_unborn():
            self.part.unlink()

    def _is_unborn(self) -> bool:
        try:
            with self.part.open("rb") as file:
                return not file.readline().endswith(b"\n")
        except FileNotFoundError:
            return False

    def _extend(self, found: Path, header: Header) -> None:
        """Let the run that is here go on under a header with other ends.

        What is over stays as it is until the longer run is.
        """
        with open_whole(self.part, mode=0o600) as file, found.open("rb") as old:
            old.readline()
            file.write(codec.encode(with_ends(read(found)[0], header)) + b"\n")
            copyfileobj(old, file)
