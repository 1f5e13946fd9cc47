"""Shows runs in trackers: reads their journals from the beginning, as far as they are written."""

import logging
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from textwrap import shorten
from typing import Any, TypeVar

from fedpace.core.errors import FedpaceError, JournalError
from fedpace.core.journal import JOURNAL, JournalLines
from fedpace.report.live.tail import JournalTail
from fedpace.report.trackers.points import Point, RunPoints, identify
from fedpace.report.trackers.settings import Tracker, TrackSettings
from fedpace.report.trackers.sink import Sink, TrackedRun, open_sink

log = logging.getLogger("fedpace.track")
T = TypeVar("T")
_MOST_LETTERS = 300
"""Of what a package says that went wrong."""
_AT_ONCE = 500
"""Points that a tracker is told in one call."""


class TrackerFailed(FedpaceError):
    """A tracker did not take what it was told."""


class Trackers:
    """The trackers that runs are shown in.

    One that fails is told of once in the log and left alone from then on; the others go on.
    strict: it is an error instead. root: the folder of the runs, where files go by default.
    """

    def __init__(self, settings: TrackSettings, root: Path, strict: bool = False) -> None:
        self.group, self._strict, self._failed = settings.name, strict, set[Tracker]()
        self.sinks: dict[Tracker, Sink] = {}
        for tracker in settings.trackers:
            sink = self.attempt(tracker, open_sink, tracker, settings, root)
            if sink is not None:
                self.sinks[tracker] = sink

    def attempt(self, tracker: Tracker, call: Callable[..., T], *arguments: Any) -> T | None:
        """The result of a call to a tracker's package; None where it fails, or has failed before."""
        if tracker in self._failed:
            return None
        try:
            return call(*arguments)
        except Exception as error:  # whatever three packages and a network may raise
            reason = shorten(str(error) or "no reason", _MOST_LETTERS, placeholder=" ...")
            words = f"{tracker}: {type(error).__name__}: {reason}"
            if self._strict:
                raise TrackerFailed(words) from error
            self._failed.add(tracker)
            log.warning("%s; it is told no more, and the run goes on", words)
            return None


class RunExport:
    """One run on its way from its journal into trackers. ended: nothing more is told about it."""

    def __init__(self, folder: Path, trackers: Trackers) -> None:
        self._trackers, self._folder, self._tail = trackers, folder, JournalTail(folder)
        self.ended = False
        self._start_anew()

    def _start_anew(self) -> None:
        self._lines = JournalLines(self._folder / JOURNAL)
        self._points: RunPoints | None = None
        self._runs: dict[Tracker, TrackedRun] = {}
        self._told = 0

    def advance(self) -> None:
        """Tell the trackers what is new in the journal, and of its end if it is there."""
        fresh = self._fresh()
        while points := list(islice(fresh, _AT_ONCE)):
            for tracker, run in self._runs.items():
                new = points[max(run.known - self._told, 0) :]
                if new:
                    self._trackers.attempt(tracker, run.log, new)
            self._told += len(points)
        if self._points is not None and self._points.tally.end_s is not None:
            self.end()

    def end(self) -> None:
        """Tell the trackers how the run stands."""
        if self.ended:
            return
        self.ended = True
        self._close_runs()

    def check_begun(self) -> None:
        """JournalError where there is no run in the folder."""
        if self._lines.header is None:
            raise JournalError(f"there is no {JOURNAL} in {self._folder}; give the folder of a run")

    def _close_runs(self) -> None:
        if self._points is not None:
            for tracker, run in self._runs.items():
                self._trackers.attempt(tracker, run.end, self._points.end())

    def _fresh(self) -> Iterator[Point]:
        """Points of all that has come to the journal since the last time."""
        while not self.ended and (piece := self._tail.read()).lines:
            if piece.anew and self._points is not None:  # the run began again
                self._close_runs()
                self._start_anew()
            for line in piece.lines:
                message, header = self._lines.decode(line), self._lines.header
                if message is None or header is None:
                    continue
                if self._points is None:
                    self._points = RunPoints(header)
                    self._open_runs(line)
                yield from self._points.write(message)

    def _open_runs(self, first: bytes) -> None:
        if self._lines.header is None:
            return
        identity = identify(self._lines.header, first, self._trackers.group)
        for tracker, sink in self._trackers.sinks.items():
            run = self._trackers.attempt(tracker, sink.open, identity)
            if run is not None:
                self._runs[tracker] = run


def export_run(folder: Path, trackers: Trackers) -> None:
    """Show a run, as far as it has come, in trackers."""
    export = RunExport(folder, trackers)
    export.advance()
    export.check_begun()
    export.end()
