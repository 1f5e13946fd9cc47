"""The folder of a run: names of its files, and whether a run may begin there, go on or be extended."""

import json
import logging
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shutil import copyfileobj, rmtree
from typing import Any, NamedTuple, Self

from fedpace.core import codec
from fedpace.core.errors import ConfigError, JournalError
from fedpace.core.host import open_whole, write_whole
from fedpace.core.journal import JOURNAL, Header, part_path, read
from fedpace.report.summary import Summary, summarise
from fedpace.runs.disk.generations import SnapshotFiles
from fedpace.runs.disk.lock import FolderLock

log = logging.getLogger("fedpace.server")

BUDGET_ENDS = ("budget.time_s", "budget.money")
"""Limits that end a run, as stop.* does; unlike those, policies are told them."""
_MOST_NAMED = 4
_MOST_LETTERS = 60
_NOTHING = "not set"


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
        self.part, self.snapshot = part_path(self.journal), path / "snapshot.pt"
        self.snapshots = SnapshotFiles(self.snapshot)
        self.spool, self.clients, self.run_id = path / "spool", path / "clients.json", path / "run.json"
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
                f"{self.path} holds a run already; use --resume, --overwrite or another folder"
            )

    def header(self) -> Header | None:
        """The header of the run that is here; None where there is none."""
        found = self._found()
        return None if found is None or (found == self.part and self._is_unborn()) else read(found)[0]

    def open(self, header: Header, resume: bool, overwrite: bool, fixed: Collection[str] = ()) -> bool:
        """Make room for the run of this header; True: it is to be run or gone on with, not over.

        The folder is locked first, until `release`: another process writes there, or none does.
        A run that is there may have had other ends (stop.*, BUDGET_ENDS), as long as it has not come
        further than the new ones; it is over no more then. fixed: ends that the policy plans with.
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
            rmtree(self.spool, ignore_errors=True)
            for path in (self.part, self.journal, self.weights, self.clients):
                path.unlink(missing_ok=True)
        elif not resume:
            self.check_free()
        self._drop_unborn()
        found = self._found()
        if found is None:
            self.drop_helpers()
        elif not _begins_with(found, header):
            self._extend(found, header, fixed)
        return not self.is_over

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

    def _extend(self, found: Path, header: Header, fixed: Collection[str]) -> None:
        """Let the run that is here go on under a header with other ends; JournalError if it cannot.

        What is over stays as it is until the longer run is.
        """
        check_extension(found, read(found)[0], header, fixed)
        with open_whole(self.part, mode=0o600) as file, found.open("rb") as old:
            old.readline()
            file.write(codec.encode(header) + b"\n")
            copyfileobj(old, file)


class Difference(NamedTuple):
    """A setting that differs between a run that is asked for and the one of a folder."""

    key: str
    here: Any
    there: Any

    def __str__(self) -> str:
        if self.key == "model":  # layers and their costs are no setting, and fill a page
            return "the model's layers or their costs are others here than in the folder's run"
        return f"{self.key} is {_short(self.here)} here but {_short(self.there)} in the folder's run"


def differences(here: Header, there: Header) -> list[Difference]:
    """Settings in which two headers differ, by their keys in a config."""
    ours, theirs = _settings(here), _settings(there)
    found = [
        Difference(key, ours.get(key, _NOTHING), theirs.get(key, _NOTHING))
        for key in {**ours, **theirs}
        if ours.get(key, _NOTHING) != theirs.get(key, _NOTHING)
    ]
    # What follows from another setting is named only where nothing else is.
    plain = [one for one in found if not one.key.startswith("context.") and one.key != "model"]
    return plain or found


def check_extension(path: Path, there: Header, header: Header, fixed: Collection[str]) -> None:
    """JournalError, with the keys, unless the run of a journal can go on under another header."""
    found = differences(header, there)
    ends = [one for one in found if one.key.startswith("stop.") or one.key in BUDGET_ENDS]
    others = [one for one in found if one not in ends]
    if others or not ends:
        named = ", ".join(map(str, others[:_MOST_NAMED])) or "its first line is another"
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        raise JournalError(
            f"{path}: {named}{more}; resume with the same settings and version (only stop.*, "
            f"{' and '.join(BUDGET_ENDS)} may differ), or start over with --overwrite"
        )
    planned = [one for one in ends if one.key in fixed]
    if planned:
        raise JournalError(
            f"{path}: {planned[0]}, and {header.policy} plans with it from the start; "
            "a run of it cannot be extended so, start over with --overwrite or in another folder"
        )
    if path.name == JOURNAL and header.run.get("clock") == "real":
        raise JournalError(
            f"{path}: {ends[0]}, but a served run that is over has let its clients go; "
            "start over with --overwrite or in another folder"
        )
    _check_longer(path, header, summarise(path, unfinished=True))


def _check_longer(path: Path, header: Header, run: Summary) -> None:
    """Refuse ends that the run has passed already."""
    stop, budget = header.run.get("stop", {}), header.context.budget
    seconds = f"{run.end_s:g} seconds"
    reached = (
        ("stop.rounds", stop.get("rounds"), run.rounds, f"{run.rounds} rounds"),
        ("stop.hours", stop.get("hours"), run.end_s / 3600, f"{run.end_s / 3600:g} hours"),
        ("budget.time_s", budget.time_s, run.end_s, seconds),
        ("budget.money", budget.money, run.money or 0.0, f"{run.money or 0.0:g} of its money"),
    )
    passed = [(key, limit, words) for key, limit, so_far, words in reached if limit and limit < so_far]
    target = stop.get("target")
    at = run.time_to(target, stop.get("metric")) if target is not None and run.values else None
    if at is not None and at < run.end_s:
        passed.append(("stop.target", target, f"{seconds} and reached that before"))
    for key, limit, words in passed:
        raise JournalError(
            f"{path}: {key} is {limit} here, but the folder's run has gone {words}; a run can be "
            "extended, not shortened: use another folder, or start over with --overwrite"
        )


def _begins_with(path: Path, header: Header) -> bool:
    with path.open("rb") as file:
        return file.readline() == codec.encode(header) + b"\n"


def _settings(header: Header) -> dict[str, Any]:
    """All that a header has, by the keys of a config; what only follows from them under context."""
    label = header.run.get("label", header.policy)
    own = {"use": header.policy, **header.settings}
    context = asdict(header.context)
    model, budget = context.pop("model"), context.pop("budget")
    tables = {**header.run, f"policies.{label}": own, "budget": budget, "context": context}
    return {**dict(_flat(tables, "")), "model": model, "fedpace": header.fedpace}


def _flat(table: Mapping[str, Any], where: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{where}{key}.")
        elif value is not None:
            yield where + key, list(value) if isinstance(value, tuple) else value


def _short(value: Any) -> str:
    text = value if value is _NOTHING else repr(value)
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 3] + "..."
