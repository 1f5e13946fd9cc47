"""Progress bars of runs: time of the run's clock, round, main metric and rate."""

from collections.abc import Callable
from time import monotonic
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from fedpace.core.run import Standing, StopSettings
from fedpace.report.units import time_unit
from fedpace.runs.comparison.compare import Entry
from fedpace.runs.config import Config, policy_plan


class ProgressBars:
    """One bar a run; on a stream that is no terminal only the last state is printed."""

    def __init__(self, console: Console | None = None) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[state]}"),
            console=console or Console(stderr=True),
            refresh_per_second=4,
        )
        self._bars: dict[str, TaskID] = {}
        self._drawn: dict[str, float] = {}

    def of(self, name: str, stop: StopSettings) -> Callable[[Standing], None]:
        """The watch of one run; its bar appears with the first call."""

        def update(standing: Standing) -> None:
            if name not in self._bars:
                self._bars[name] = self._progress.add_task(name, total=1.0, state="")
            elif monotonic() - self._drawn.get(name, 0.0) < 0.1 and _share(standing, stop) < 1.0:
                return  # called at every event
            self._drawn[name] = monotonic()
            bar = self._bars[name]
            self._progress.update(
                bar, completed=_share(standing, stop), state=self._state(bar, standing)
            )

        return update

    def follow(self, config: Config) -> Callable[[Entry, Standing], None]:
        """The progress of a comparison: one bar a run."""

        watches: dict[Entry, Callable[[Standing], None]] = {}

        def update(entry: Entry, standing: Standing) -> None:
            if entry not in watches:
                stop = policy_plan(config, entry.label).stop
                watches[entry] = self.of(f"{entry.label} seed {entry.seed}", stop)
            watches[entry](standing)

        return update

    def _state(self, bar: TaskID, standing: Standing) -> str:
        elapsed = self._progress.tasks[self._progress.task_ids.index(bar)].elapsed or 0.0
        rate = f"{standing.round / elapsed:.1f} rounds/s" if elapsed > 0.5 else ""
        tested = "" if standing.tested is None else standing.tested.text
        unit, unit_s = time_unit(standing.now_s)
        parts = [f"{standing.now_s / unit_s:.1f} {unit}", f"round {standing.round}", tested, rate]
        return "  ".join(part for part in parts if part)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._progress.stop()


def _share(standing: Standing, stop: StopSettings) -> float:
    """Share of the way to the nearest end that the run has gone."""
    shares = [standing.used]
    if stop.rounds is not None:
        shares.append(standing.round / stop.rounds)
    if stop.hours is not None:
        shares.append(standing.now_s / (3600 * stop.hours))
    return min(max(shares), 1.0)
