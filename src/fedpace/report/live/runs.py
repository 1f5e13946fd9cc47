"""The runs of a folder that are followed, and where they stand."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fedpace.core.journal import JOURNAL, part_path
from fedpace.report.live.run import FollowedRun, is_written
from fedpace.report.summary import Summary

LOOK_EVERY_S = 2.0
"""How often a folder of several runs is searched for more of them."""
MOST_RUNS = 1000
MOST_BYTES = 1_500_000_000
"""Journals, all together, of which timelines are kept in memory."""
_MOST_DEPTH = 6
_NAMES = (JOURNAL, part_path(Path(JOURNAL)).name)


@dataclass(frozen=True, slots=True)
class RunsState:
    """Where the runs of a folder stand. text: for people; over: none is going on, and none will."""

    text: str
    runs: int
    ended: int
    under_way: bool
    over: bool


class FollowedRuns:
    """All runs at or below a folder; those that begin later are found, too."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder, self._clock = folder, clock
        self.runs: dict[Path, FollowedRun] = {}
        self._looked_at: float | None = None
        self._written, self._written_at = False, -1.0

    def advance(self, for_s: float = 0.5) -> bool:
        """Take in what has come, for about so long; True where there was any."""
        until, moved = self._clock() + for_s, self._look()
        again = True
        while again and self._clock() < until:
            again = False
            for run in self.runs.values():
                again |= run.advance()
            moved |= again
            self._bound_memory()
        return moved

    def _bound_memory(self) -> None:
        """Do without the timelines of the largest journals, where all together are too large."""
        kept = [run for run in self.runs.values() if run.tables is not None]
        if sum(run.size for run in kept) > MOST_BYTES:
            max(kept, key=lambda run: run.size).tables = None

    def _look(self) -> bool:
        """Search for runs now and then; True where there is another one."""
        now, before = self._clock(), len(self.runs)
        if self._looked_at is not None and now - self._looked_at < LOOK_EVERY_S:
            return False
        self._looked_at = now
        for folder in find_runs(self.folder):
            if folder not in self.runs and len(self.runs) < MOST_RUNS:
                self.runs[folder] = FollowedRun(folder)
        return len(self.runs) > before

    def groups(self) -> dict[str, list[Summary]]:
        """Summaries by label, in the order in which they came, so that labels keep their colours.

        Seeds are sorted; of two runs alike the first one counts.
        """
        found: dict[str, dict[int, Summary]] = {}
        for run in self.runs.values():
            summary = run.summary()
            if summary is not None:
                found.setdefault(summary.label, {}).setdefault(summary.seed, summary)
        return {label: [runs[seed] for seed in sorted(runs)] for label, runs in found.items()}

    def of(self, summary: Summary) -> FollowedRun | None:
        """The run that a summary is of."""
        wanted = summary.label, summary.seed
        return next((run for run in self.runs.values() if run.name == wanted), None)

    def state(self) -> RunsState:
        """Where they stand now."""
        known = [run for run in self.runs.values() if run.header is not None]
        ended, written = sum(run.over for run in known), self._is_written()
        over = bool(known) and ended == len(known) and not written
        faults = [run.fault for run in self.runs.values() if run.fault is not None]
        return RunsState(
            faults[0] if faults else _words(known, ended, written), len(known), ended, written, over
        )

    def _is_written(self) -> bool:
        """True where a process writes in the folder, a run's or that of all; asked once a second."""
        now = self._clock()
        if self._written_at < 0 or now - self._written_at >= 1.0:
            places = (self.folder, *(run.folder for run in self.runs.values() if not run.over))
            self._written, self._written_at = any(map(is_written, places)), now
        return self._written


def _words(known: list[FollowedRun], ended: int, written: bool) -> str:
    if not known:
        return "nothing has begun yet"
    if len(known) > 1:
        going = "under way" if written else "over" if ended == len(known) else "stopped"
        return f"{going}: {ended} of {len(known)} runs are over"
    return known[0].words("under way" if written else "stopped")


def find_runs(folder: Path) -> list[Path]:
    """Folders at or below this one that hold a journal, in their order; links are not followed."""
    found, depth = list[Path](), len(folder.parts)
    for place, below, files in os.walk(folder):
        here = Path(place)
        if any(name in files for name in _NAMES):
            found.append(here)
            below.clear()  # what lies below is the run's own
        elif len(here.parts) - depth >= _MOST_DEPTH:
            below.clear()
    return sorted(found)
