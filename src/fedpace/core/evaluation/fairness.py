"""How evenly a model serves the clients: a metric on each client's own samples, in a few numbers."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from fedpace.core.evaluation.metric import MetricInfo

SPEED_GROUPS = ("slow", "middle", "fast")


@dataclass(frozen=True, slots=True)
class Fairness:
    """A metric over clients, each of which counts the same.

    worst_decile: mean of the worst tenth, of one client at least; spread: standard deviation;
    groups: mean of the slow, the middle and the fast third. Clients without a value are left out.
    """

    metric: str
    clients: int
    mean: float
    worst_decile: float
    spread: float
    groups: dict[str, float] = field(default_factory=dict)


def fairness_of(
    metric: MetricInfo, values: Sequence[float | None], groups: Sequence[str] = ()
) -> Fairness | None:
    """The numbers of clients' values; None where no client has one.

    groups: of client 0, 1, ...; none where speeds are not known.
    """
    known = [
        (value, groups[client] if groups else "")
        for client, value in enumerate(values)
        if value is not None and math.isfinite(value)
    ]
    if not known:
        return None
    ordered = sorted((value for value, _ in known), reverse=not metric.higher_is_better)
    worst = ordered[: max(len(ordered) // 10, 1)]
    means = {
        name: statistics.fmean(mine)
        for name in SPEED_GROUPS
        if (mine := [value for value, group in known if group == name])
    }
    return Fairness(
        metric.name,
        len(known),
        statistics.fmean(ordered),
        statistics.fmean(worst),
        statistics.pstdev(ordered),
        means,
    )


def speed_groups(seconds: Sequence[float]) -> tuple[str, ...]:
    """The third that each client belongs to, by its seconds a sample; the first of equals is faster."""
    order = sorted(range(len(seconds)), key=lambda client: (-seconds[client], -client))
    names = [""] * len(seconds)
    for rank, client in enumerate(order):
        names[client] = SPEED_GROUPS[3 * rank // len(seconds)]
    return tuple(names)
