"""What labels are compared by on a page, seed by seed: time or money to targets, and tested values."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedpace.core.evaluation.metric import MetricInfo
from fedpace.report.page.paired import MOST_LABELS, PairedDifference, paired_difference
from fedpace.report.summary import Groups, Summary
from fedpace.report.table import MeanAndSd, target_costs, target_text


def aims_of(
    groups: Groups, targets: Sequence[float], metric: MetricInfo | None
) -> list[dict[str, Any]]:
    """Entries of what labels are compared by, seed by seed.

    For each target its heading, and the time and, with prices, the money that it took. Then the last
    and the best tested value of the metric.
    """
    if metric is None:
        return []
    priced = any(run.money is not None for runs in groups.values() for run in runs)
    found = []
    for target in targets:
        entry: dict[str, Any] = {"target": target, "text": target_text(metric, target)}
        entry["time"] = _cost(groups, target, metric, money=False)
        entry["money"] = _cost(groups, target, metric, money=True) if priced else None
        found.append(entry)
    for word, pick in (("final", Summary.final), ("best", Summary.best)):
        value = _value(groups, metric, pick)
        found.append({"target": None, "text": f"{word} {metric.name}", "value": value})
    return found


def _cost(groups: Groups, target: float, metric: MetricInfo, money: bool) -> dict[str, Any]:
    by_seed = [
        {run.seed: _taken(run, target, metric, money) for run in runs} for runs in groups.values()
    ]
    costs = target_costs(groups, target, money, metric)
    labels = [
        None if cost is None else _label(cost.taken, cost.reached, values)
        for cost, values in zip(costs, by_seed, strict=True)
    ]
    return {"labels": labels, "pairs": _pairs(by_seed)}


def _value(
    groups: Groups, metric: MetricInfo, pick: Callable[[Summary, str], float | None]
) -> dict[str, Any]:
    by_seed = [
        {run.seed: pick(run, metric.name) if metric.name in run.values else None for run in runs}
        for runs in groups.values()
    ]
    labels = [
        _label(
            MeanAndSd.of(list(values.values())), sum(one is not None for one in values.values()), values
        )
        for values in by_seed
    ]
    return {"labels": labels, "pairs": _pairs(by_seed)}


def _label(taken: MeanAndSd | None, reached: int, values: Mapping[int, float | None]) -> dict[str, Any]:
    mean, sd = (None, None) if taken is None else (taken.mean, taken.sd)
    seeds = {"seeds": len(values), "values": list(values.values())}
    return {"mean": mean, "sd": sd, "reached": reached, **seeds}


def _pairs(by_seed: Sequence[Mapping[int, float | None]]) -> list[list[Any]]:
    """Differences of each label from those before it; from the first alone where there are many."""
    last = len(by_seed) if len(by_seed) <= MOST_LABELS else 1
    return [
        [index, base, *_plain(paired_difference(by_seed[index], by_seed[base]))]
        for base in range(last)
        for index in range(base + 1, len(by_seed))
    ]


def _taken(run: Summary, target: float, metric: MetricInfo, money: bool) -> float | None:
    if metric.name not in run.values:
        return None
    return run.money_to(target, metric.name) if money else run.time_to(target, metric.name)


def _plain(found: PairedDifference) -> list[Any]:
    """Seeds, missing, mean, low, high and verdict; many pairs are on a page, so digits are few."""
    numbers = (found.mean, found.low, found.high)
    digits = [None if one is None else float(f"{one:.6g}") for one in numbers]
    return [found.seeds, found.missing, *digits, found.verdict]
