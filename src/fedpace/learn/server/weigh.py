"""Updates with their weights and places: the step of aggregation before any sum."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from fedpace.core.errors import PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update
from fedpace.learn.model.width import ThinModel

CPU = torch.device("cpu")

Places = Tensor | slice
"""Where some numbers are in a longer vector: a slice of it for whole layers, else one by one."""

ThinModels = Mapping[float, ThinModel]
"""Thinner models, by their width."""


@dataclass(frozen=True, slots=True)
class AggregationRule:
    """Rule by which updates become one, from `core.commands.Aggregate` and `ServerSettings`.

    name: of a rule in `combine.COMBINERS`; normalise, missed: see `correct`.
    """

    name: str = "mean"
    missing: Literal["skip", "zero"] = "skip"
    normalise: bool = False
    missed: Sequence[float] | None = None


MEAN = AggregationRule()


class WeightedUpdate(NamedTuple):
    """One update, its weight, and where its numbers are among those of the deepest update.

    factor: what its delta is multiplied by in a sum: the weight, over the effort where the rule
    normalises. lag: for rule "mix", what the client downloaded minus the slot's model, at the
    update's numbers; None where they are the same.
    """

    update: Update
    weight: float
    factor: float
    params_at: Places
    buffers_at: Places
    lag: Tensor | None


def weigh(
    layout: Layout,
    updates: Sequence[Update],
    weights: Sequence[float],
    rule: AggregationRule,
    lags: Sequence[Tensor | None],
    slims: ThinModels,
) -> list[WeightedUpdate]:
    """Give every update its weight; one of weight 0 carries nothing and is left out.

    lags: over all parameters, one an update or none at all.
    """
    each = zip(updates, weights, lags or (None,) * len(updates), strict=True)
    given = [(update, weight, lag) for update, weight, lag in each if weight]
    device = common_device(update.params for update, _, _ in given)
    start = layout.start(max((update.depth for update, _, _ in given), default=0))
    places: dict[tuple[int, float | None], tuple[Places, Places]] = {}
    weighted = []
    for update, weight, lag in given:
        cut = update.depth, update.width
        if cut not in places:
            params_at, buffers_at = find_places(layout, *cut, slims)
            places[cut] = (
                _within(params_at, start.params, device),
                _within(buffers_at, start.buffers, device),
            )
        params_at, buffers_at = places[cut]
        factor = weight / update.effort if rule.normalise else weight
        if lag is not None:
            lag = lag.to(device)[start.params :][params_at]
        weighted.append(WeightedUpdate(update, weight, factor, params_at, buffers_at, lag))
    return weighted


def _within(at: Places, start: int, device: torch.device) -> Places:
    """Places in a vector as those in its part from `start` on."""
    return slice(at.start - start, None) if isinstance(at, slice) else at.to(device) - start


def find_places(
    layout: Layout, depth: int, width: float | None, slims: ThinModels
) -> tuple[Places, Places]:
    """Where parameters and buffers of a part of the model are among all of them."""
    if width in (None, 1.0):
        start = layout.start(depth)
        return slice(start.params, None), slice(start.buffers, None)
    slim = None if width is None else slims.get(width)
    if slim is None:
        raise PolicyError(
            f"an update has width {width}, but known are {sorted(slims)}; give its thinner model"
        )
    return slim.params, slim.buffers


def common_device(vectors: Iterable[Tensor]) -> torch.device:
    """The first device other than the CPU, if there is one."""
    return next((vector.device for vector in vectors if not vector.is_cpu), CPU)
