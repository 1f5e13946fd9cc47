"""Rules by which weighted updates become one: mean, sum and mix, and the table that names them.

A rule is a function of `Contributions` to the combined deltas, and a row of COMBINERS. It sees every
update with its weight and its places, so that it may do more than add.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpace.core.errors import PolicyError, nearest
from fedpace.learn.server.correct import restore_effort
from fedpace.learn.server.sums import Contributions, divisor


def weighted_sum(contributions: Contributions) -> Tensor:
    """Sum of weight * delta."""
    values = contributions.sum_deltas()
    if contributions.rule.normalise:
        restore_effort(values, contributions.spans)
    return values


def mean(contributions: Contributions) -> Tensor:
    """Weighted mean over those who carry a number, or over all updates if missing ones count as 0."""
    values = weighted_sum(contributions)
    if contributions.rule.missing == "zero":
        return values.div_(contributions.total)
    for span in contributions.spans:
        values[span.params].div_(divisor(span.params_weight))
    return values


def mix(contributions: Contributions) -> Tensor:
    """Sum of weight * (the client's model - the slot's model)."""
    return contributions.add_lags(weighted_sum(contributions))


@dataclass(frozen=True, slots=True)
class Combiner:
    """A rule's function, and what it wants of weights.

    relative: they are shares of their sum, and so none is negative; else they count as they are.
    lags: it needs those of `WeightedUpdate`.
    """

    combine: Callable[[Contributions], Tensor]
    relative: bool
    lags: bool = False


COMBINERS = {
    "mean": Combiner(mean, relative=True),
    "sum": Combiner(weighted_sum, relative=False),
    "mix": Combiner(mix, relative=False, lags=True),
}


def find_combiner(name: str) -> Combiner:
    """The rule of that name."""
    if name not in COMBINERS:
        raise PolicyError(
            f"there is no rule {name!r}{nearest(name, COMBINERS)}; known are {', '.join(COMBINERS)}"
        )
    return COMBINERS[name]


def check_weights(name: str, updates: int, weights: Sequence[float], lags: int = 0) -> None:
    """Refuse weights and lags that the rule cannot use."""
    combiner = find_combiner(name)
    if updates != len(weights):
        raise PolicyError(f"{updates} updates have {len(weights)} weights; give one weight an update")
    if lags != (updates if combiner.lags else 0):
        raise PolicyError(f"{lags} lags for rule {name!r}; a mix needs one an update, others none")
    if not all(math.isfinite(weight) for weight in weights):
        raise PolicyError(f"weights are {tuple(weights)}; give finite numbers")
    if combiner.relative and updates and (min(weights) < 0 or sum(weights) <= 0):
        raise PolicyError(
            f"weights of a mean are {tuple(weights)}; none may be negative, and one must be positive"
        )


def mean_buffers(contributions: Contributions) -> tuple[Tensor, Tensor]:
    """Mean of each buffer over those who carry it, and how far towards it to go, in [0, 1].

    Buffers are statistics, whatever the rule: they move by the share of weight that it gives the
    carriers, 1 at most, and so never leave the range of what was seen.
    """
    if not contributions.buffers:
        none = torch.empty(0, dtype=torch.float64, device=contributions.device)
        return none, none
    values = contributions.sum_buffers()
    shares = torch.ones_like(values)
    rule, total = contributions.rule, contributions.total
    relative = find_combiner(rule.name).relative
    for span in contributions.spans:
        weight = span.buffers_weight
        values[span.buffers].div_(divisor(weight))
        if relative:
            weight = weight / (total if rule.missing == "zero" else divisor(weight))
        shares[span.buffers] = weight
    return values, shares.clamp_(max=1.0)
