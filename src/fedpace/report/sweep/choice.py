"""The choice among the settings of a policy: scores on the seeds of the choice, and their order.

A setting with a run that diverged, failed or is not over is worse than all others, and is not chosen.
By time: the fewer targets are missed, then the smaller the mean time to them, where one that is missed
counts as the length of its run. By value: the better the mean of the metric. Settings that are equal in
that go by the mean of their last tests, and then by their order in the grid.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

from fedpace.core.evaluation.metric import MetricInfo
from fedpace.report.summary import Groups, Summary, chosen_metric
from fedpace.report.units import time_unit


@dataclass(frozen=True, slots=True)
class Criterion:
    """What settings are chosen by: "time" to targets, or the "value" of a metric.

    metric: by default the main one; at_s: when the value is taken, by the last test until then;
    None: by the last test of all.
    """

    by: Literal["time", "value"] = "value"
    metric: str | None = None
    targets: tuple[float, ...] = ()
    at_s: float | None = None

    def words(self, info: MetricInfo | None) -> str:
        """The criterion as people read it; info: its metric, where that is known."""
        name = (info.name if info else self.metric) or "main metric"
        if self.by == "time":
            sign = info.sign if info else ""
            aims = [info.target(one) if info else f"{one:g}" for one in self.targets]
            listed = " and ".join([", ".join(aims[:-1])] * (len(aims) > 1) + aims[-1:])
            mean = "mean " if len(aims) > 1 else ""
            return f"{mean}time to {name} {f'{sign} ' if sign else ''}{listed}"
        if self.at_s is None:
            return f"last {name}"
        unit, unit_s = time_unit(self.at_s)
        return f"{name} at {self.at_s / unit_s:g} {unit}"


@dataclass(frozen=True, slots=True)
class CellScore:
    """How one setting did on some seeds.

    values: of each seed, seconds or the metric; missed: targets not reached, of all `aims` of all
    seeds; last: mean of the last tests; faults: runs that diverged, failed or are not over, by word.
    """

    values: tuple[float, ...]
    missed: int
    aims: int
    last: float | None
    faults: Mapping[str, int]

    @property
    def mean(self) -> float | None:
        return fmean(self.values) if self.values else None

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over seeds; None of fewer than two."""
        return stdev(self.values) if len(self.values) > 1 else None

    @property
    def is_sound(self) -> bool:
        """True where every run has come to its end and was tested: it can be chosen."""
        return not self.faults and bool(self.values)


def score_runs(
    runs: Sequence[Summary], criterion: Criterion, info: MetricInfo | None, seeds: int
) -> CellScore:
    """The score of the runs of a setting; seeds: how many there should be."""
    faults: dict[str, int] = {}
    for run in runs:
        word = fault_of(run)
        if word is not None:
            faults[word] = faults.get(word, 0) + 1
    if len(runs) < seeds:
        faults["failed"] = faults.get("failed", 0) + seeds - len(runs)
    if info is None:
        return CellScore((), 0, 0, None, faults)
    tested = [run for run in runs if run.values.get(info.name)]
    last = [value for run in tested if (value := run.final(info.name)) is not None]
    mean_last = fmean(last) if last else None
    if criterion.by == "value":
        values = [
            value for run in tested if (value := _value_at(run, info, criterion.at_s)) is not None
        ]
        return CellScore(tuple(values) if len(values) == len(runs) else (), 0, 0, mean_last, faults)
    times = [[run.time_to(target, info.name) for target in criterion.targets] for run in tested]
    missed = sum(time is None for row in times for time in row)
    seconds = tuple(
        fmean([run.end_s if time is None else time for time in row])
        for run, row in zip(tested, times, strict=True)
    )
    return CellScore(seconds, missed, len(tested) * len(criterion.targets), mean_last, faults)


def fault_of(run: Summary) -> str | None:
    """A word for a run that did not end as it was to; None for one that did."""
    if run.diverged is not None:
        return "diverged"
    if run.nothing is not None:
        return "nothing happened"
    return "unfinished" if run.finished is None else None


def rank_cells(
    scores: Mapping[str, CellScore], criterion: Criterion, info: MetricInfo | None
) -> list[str]:
    """Labels that can be chosen, the best first; labels come in the order of the grid."""
    sound = [label for label, score in scores.items() if score.is_sound]
    return sorted(sound, key=lambda label: _order(scores[label], criterion, info))


def ties_of(
    label: str, scores: Mapping[str, CellScore], criterion: Criterion, info: MetricInfo | None
) -> list[str]:
    """Other labels that are as good by the criterion itself, whatever their last tests."""
    best = _order(scores[label], criterion, info)[:2]
    return [
        other
        for other, score in scores.items()
        if other != label and score.is_sound and _order(score, criterion, info)[:2] == best
    ]


def best_of_each(
    groups: Groups, cells: Mapping[str, str], criterion: Criterion, seeds: int | None = None
) -> tuple[dict[str, str | None], dict[str, CellScore]]:
    """The chosen label of each policy, None where no setting can be, and the scores of all cells.

    cells: label of each cell -> label of its policy; seeds: that each should have, by default as many
    as the label with most.
    """
    info = chosen_metric(groups, criterion.metric)
    most = seeds or max((len(runs) for runs in groups.values()), default=0)
    scores = {label: score_runs(groups.get(label, ()), criterion, info, most) for label in cells}
    best: dict[str, str | None] = dict.fromkeys(cells.values())
    for policy in best:
        own = {label: scores[label] for label, of in cells.items() if of == policy}
        best[policy] = next(iter(rank_cells(own, criterion, info)), None)
    return best, scores


def _order(
    score: CellScore, criterion: Criterion, info: MetricInfo | None
) -> tuple[float, float, float]:
    sign = -1.0 if info is None or info.higher_is_better else 1.0
    last = math.inf if score.last is None else sign * score.last
    mean = math.inf if score.mean is None else score.mean
    return score.missed, mean if criterion.by == "time" else sign * mean, last


def _value_at(run: Summary, info: MetricInfo, at_s: float | None) -> float | None:
    track = [value for at, value in run.metric(info.name) if at_s is None or at <= at_s]
    return track[-1] if track else None
