"""A comparison as numbers: one row a label, mean and spread over seeds."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from fedpace.core.errors import ConfigError
from fedpace.report.summary import Summary


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean and sample standard deviation (n - 1) over seeds; sd is None for one value."""

    mean: float
    sd: float | None

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Self | None:
        """Over the values that are there; None when none is."""
        there = [value for value in values if value is not None]
        if not there:
            return None
        return cls(statistics.fmean(there), statistics.stdev(there) if len(there) > 1 else None)


@dataclass(frozen=True, slots=True)
class Reach:
    """Getting to one target: time_s over the `reached` of `seeds` runs that did.

    factor: time_s.mean over that of the first row, where all seeds of both got there.
    """

    target: float
    reached: int
    seeds: int
    time_s: Spread | None
    factor: float | None


@dataclass(frozen=True, slots=True)
class Row:
    """One label. Accuracies and shares in [0, 1]; bytes are down and up together."""

    label: str
    seeds: int
    times: tuple[Reach, ...]
    best_accuracy: Spread | None
    final_accuracy: Spread | None
    ran_s: Spread | None
    rounds: Spread | None
    participation: Spread | None
    clients: Spread | None
    idle: Spread | None
    moved_bytes: Spread | None


def rows(groups: Mapping[str, Sequence[Summary]], targets: Sequence[float]) -> list[Row]:
    """The table as numbers: a row for each label of `groups`, whose values are runs over seeds."""
    for target in targets:
        if not 0 < target <= 1:
            raise ConfigError(f"target is {target}; accuracies are shares, so set it in (0, 1], as 0.7")
    for label, runs in groups.items():
        if not runs:
            raise ConfigError(f"there are no runs under {label!r}; give at least one, or leave it out")
    out: list[Row] = []
    for label, runs in groups.items():
        first = out[0].times if out else None
        reaches = tuple(
            _reach(runs, target, first[i] if first else None) for i, target in enumerate(targets)
        )
        out.append(
            Row(
                label,
                len(runs),
                reaches,
                Spread.of([run.best_accuracy for run in runs]),
                Spread.of([run.final_accuracy for run in runs]),
                Spread.of([run.end_s for run in runs]),
                Spread.of([run.rounds for run in runs]),
                Spread.of([run.mean_participation for run in runs]),
                Spread.of([run.mean_clients for run in runs]),
                Spread.of([run.idle_share for run in runs]),
                Spread.of([run.moved_bytes for run in runs]),
            )
        )
    return out


def _reach(runs: Sequence[Summary], target: float, first: Reach | None) -> Reach:
    """`first` is the same target in the first row, None in the first row itself."""
    times = [run.time_to(target) for run in runs]
    reached = sum(time is not None for time in times)
    spread = Spread.of(times)
    base = first or Reach(target, reached, len(runs), spread, None)
    factor = None
    if spread and reached == len(runs) and base.time_s and base.reached == base.seeds:
        factor = spread.mean / base.time_s.mean if base.time_s.mean > 0 else None
    return Reach(target, reached, len(runs), spread, factor)
