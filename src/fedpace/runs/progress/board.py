"""Progress of the runs of a study, and whoever shows it: a terminal, a log or a notebook."""

import time
from typing import Protocol, Self

from fedpace.core.run import Standing, StopSettings, Watch
from fedpace.runs.progress.estimate import Clock, RunProgress, short_time

EVERY_S = 0.1
"""How often a display is told of one run at most; runs tell at every event."""


class ProgressDisplay(Protocol):
    """Shows the progress of runs.

    update: a run has moved, or ended (`run.ended`), which is told once; close: nothing more will come,
    as all are over, one has failed or somebody has stopped them.
    """

    def update(self, board: "ProgressBoard", run: RunProgress) -> None: ...
    def close(self, board: "ProgressBoard") -> None: ...


class ProgressBoard:
    """Progress of one run or of several, by name, in the order in which they began.

    Used as a context: its end closes the display. total: runs that there will be, one unless somebody
    sets it, as `follow_comparison` does.

        with ProgressBoard(display) as board:
            simulate(config, watches=[board.watch(label, plan.stop)])
    """

    def __init__(self, display: ProgressDisplay, clock: Clock = time.monotonic) -> None:
        self.runs: dict[str, RunProgress] = {}
        self.total = 1
        self._display, self._clock, self._began = display, clock, clock()
        self._shown: dict[str, float] = {}

    def watch(self, name: str, stop: StopSettings) -> Watch:
        """The watch of one run, for `simulate`; the run is on the board from the first call on."""
        progress, clock, display, next_at = RunProgress(name, stop, self._clock), self._clock, None, 0.0

        def update(standing: Standing) -> None:
            nonlocal display, next_at
            now = clock()
            if (now < next_at and not standing.over) or progress.ended:
                return
            if display is None:
                self.runs[name], display = progress, self._display
            next_at = now + EVERY_S
            progress.update(standing)
            display.update(self, progress)

        return update

    @property
    def ended(self) -> int:
        """Runs that are over."""
        return sum(run.ended for run in self.runs.values())

    @property
    def under_way(self) -> list[RunProgress]:
        """Runs that have begun and are not over."""
        return [run for run in self.runs.values() if not run.ended]

    @property
    def share(self) -> float:
        """How much of all runs is done, 0..1; each counts the same."""
        return sum(run.share for run in self.runs.values()) / max(self.total, 1)

    @property
    def elapsed_s(self) -> float:
        """Real seconds since the board was made."""
        return self._clock() - self._began

    @property
    def left_s(self) -> float | None:
        """Real seconds until all are over, at the pace so far; None where that is not known.

        What runs had done when they came up here, resumed or over long ago, took no time.
        """
        if self.total == 1 and self.runs:
            return next(iter(self.runs.values())).left_s
        found_there = sum(run.first_share for run in self.runs.values()) / max(self.total, 1)
        done = self.share - found_there
        if self.ended == self.total:
            return 0.0
        return self.elapsed_s * (1.0 - self.share) / done if done > 0.0 else None

    def text(self) -> str:
        """Progress of all runs together, as people read it."""
        left = "" if self.left_s is None else f", {short_time(self.left_s)} left"
        return f"{self.ended} of {self.total} runs, {100 * self.share:.0f}%{left}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self._display.close(self)
