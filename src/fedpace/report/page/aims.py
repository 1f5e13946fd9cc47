"""Targets on a page: what each label needed for them, seed by seed and in paired differences."""

from collections.abc import Sequence
from typing import Any

from fedpace.core.evaluation.metric import MetricInfo
from fedpace.report.page.paired import MOST_LABELS, PairedDifference, paired_difference
from fedpace.report.summary import Groups, Summary
from fedpace.report.table import target_costs, target_text


def aims_of(
    groups: Groups, targets: Sequence[float], metric: MetricInfo | None
) -> list[dict[str, Any]]:
    """An entry for each target: its heading, and the time and, with prices, the money that it took."""
    if metric is None:
        return []
    priced = any(run.money is not None for runs in groups.values() for run in runs)
    found = []
    for target in targets:
        entry: dict[str, Any] = {"target": target, "text": target_text(metric, target)}
        entry["time"] = _cost(groups, target, metric, money=False)
        entry["money"] = _cost(groups, target, metric, money=True) if priced else None
        found.append(entry)
    return found


def _cost(groups: Groups, target: float, metric: MetricInfo, money: bool) -> dict[str, Any]:
    by_seed = [
        {run.seed: _taken(run, target, metric, money) for run in runs} for runs in groups.values()
    ]
    labels: list[dict[str, Any] | None] = []
    for cost, values in zip(target_costs(groups, target, money, metric), by_seed, strict=True):
        if cost is None:
            labels.append(None)
            continue
        mean, sd = (None, None) if cost.taken is None else (cost.taken.mean, cost.taken.sd)
        one = {"mean": mean, "sd": sd, "reached": cost.reached, "seeds": cost.seeds}
        labels.append({**one, "values": list(values.values())})
    last = len(by_seed) if len(by_seed) <= MOST_LABELS else 1
    pairs = [
        [index, base, *_plain(paired_difference(by_seed[index], by_seed[base]))]
        for base in range(last)
        for index in range(base + 1, len(by_seed))
    ]
    return {"labels": labels, "pairs": pairs}


def _taken(run: Summary, target: float, metric: MetricInfo, money: bool) -> float | None:
    if metric.name not in run.values:
        return None
    return run.money_to(target, metric.name) if money else run.time_to(target, metric.name)


def _plain(found: PairedDifference) -> list[Any]:
    """Seeds, missing, mean, low, high and verdict; many pairs are on a page, so digits are few."""
    numbers = (found.mean, found.low, found.high)
    digits = [None if one is None else float(f"{one:.6g}") for one in numbers]
    return [found.seeds, found.missing, *digits, found.verdict]
