"""A comparison as numbers: one row a label, mean and spread over seeds."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from fedpace.core.errors import ConfigError
from fedpace.report.summary import Summary


@dataclass(frozen=True, slots=True)
class MeanAndSd:
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
class TargetCost:
    """Seconds or money that a target accuracy took the `reached` of `seeds` runs that got there.

    factor: the mean over that of the first row, where all seeds of both got there.
    """

    target: float
    reached: int
    seeds: int
    taken: MeanAndSd | None
    factor: float | None


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """The numbers of one label. Accuracies and shares in [0, 1]; bytes are down and up together.

    times, money: of each target; no money, and nothing spent, where nothing has a price.
    """

    label: str
    seeds: int
    times: tuple[TargetCost, ...]
    money: tuple[TargetCost, ...]
    best_accuracy: MeanAndSd | None
    final_accuracy: MeanAndSd | None
    ran_s: MeanAndSd | None
    spent: MeanAndSd | None
    rounds: MeanAndSd | None
    participation: MeanAndSd | None
    clients: MeanAndSd | None
    idle: MeanAndSd | None
    moved_bytes: MeanAndSd | None
    clocks: frozenset[str]
    """Clocks of its runs: virtual, real or both."""


def comparison_rows(
    groups: Mapping[str, Sequence[Summary]], targets: Sequence[float]
) -> list[ComparisonRow]:
    """The table as numbers: a row for each label of `groups`, whose values are runs over seeds."""
    for target in targets:
        if not 0 < target <= 1:
            raise ConfigError(f"target is {target}; accuracies are shares, so set it in (0, 1], as 0.7")
    for label, runs in groups.items():
        if not runs:
            raise ConfigError(f"there are no runs under {label!r}; give at least one, or leave it out")
    out: list[ComparisonRow] = []
    for label, runs in groups.items():
        first = out[0] if out else None
        paid = any(run.money is not None for run in runs)
        out.append(
            ComparisonRow(
                label,
                len(runs),
                _reaches(runs, targets, Summary.time_to, first.times if first else None),
                _reaches(runs, targets, Summary.money_to, first.money if first else None)
                if paid
                else (),
                MeanAndSd.of([run.best_accuracy for run in runs]),
                MeanAndSd.of([run.final_accuracy for run in runs]),
                MeanAndSd.of([run.end_s for run in runs]),
                MeanAndSd.of([run.money for run in runs]),
                MeanAndSd.of([run.rounds for run in runs]),
                MeanAndSd.of([run.mean_participation for run in runs]),
                MeanAndSd.of([run.mean_clients for run in runs]),
                MeanAndSd.of([run.idle_share for run in runs]),
                MeanAndSd.of([run.moved_bytes for run in runs]),
                frozenset(run.clock for run in runs),
            )
        )
    return out


def _reaches(
    runs: Sequence[Summary],
    targets: Sequence[float],
    taken: Callable[[Summary, float], float | None],
    first: tuple[TargetCost, ...] | None,
) -> tuple[TargetCost, ...]:
    """`first`: the same targets in the first row, None in the first row itself."""
    out = []
    for i, target in enumerate(targets):
        values = [taken(run, target) for run in runs]
        reach = TargetCost(
            target, sum(one is not None for one in values), len(runs), MeanAndSd.of(values), None
        )
        base = reach if first is None else first[i] if first else None
        out.append(replace(reach, factor=None if base is None else _factor(reach, base)))
    return tuple(out)


def _factor(reach: TargetCost, base: TargetCost) -> float | None:
    if reach.taken is None or base.taken is None or not base.taken.mean > 0:
        return None
    all_there = reach.reached == reach.seeds and base.reached == base.seeds
    return reach.taken.mean / base.taken.mean if all_there else None
