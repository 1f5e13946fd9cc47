"""Updates combined number by number, where some of them hold the leading channels only.

A number's carriers are those who hold it (HeteroFL, Diao et al. 2021, eq. 1 to 3); what `aggregate`
says of a layer holds for each of its numbers. One that nobody holds does not move.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from fedpace.core.errors import PolicyError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Combined, Update
from fedpace.learn.model.width import Slim
from fedpace.learn.server.parts import How, Part, most

Places = Tensor | slice


def combine_numbers(
    layout: Layout,
    parts: Sequence[Part],
    how: How,
    slims: Mapping[float, Slim],
    device: torch.device,
) -> Combined:
    """Updates of any widths and depths; sums run on `device`."""
    end = layout.start(0)
    params, buffers = _Sums(end.params, device), _Sums(end.buffers, device)
    efforts = _Sums(end.params if how.normalise else 0, device)
    lags = _Sums(end.params if how.rule == "mix" else 0, device)
    thin = {one.update.width: _places(one.update, slims, device) for one in parts if one.thin}
    for one in parts:
        update, at = one.update, layout.start(one.update.depth)
        places, statistics = thin.get(update.width, (slice(at.params, None), slice(at.buffers, None)))
        params.add(places, update.params, one.factor(how), one.weight)
        buffers.add(statistics, update.buffers, one.weight, one.weight)
        if how.normalise:
            effort = torch.full_like(update.params, update.effort, dtype=torch.float64)
            efforts.add(places, effort, one.weight, one.weight)
        if one.lag is not None:
            lags.add(places, one.lag.to(device)[places], one.weight, one.weight)
    moved, shares = params.values, buffers.weights
    if how.normalise:
        moved = moved * efforts.mean()
    if how.rule == "mean":
        every = sum(one.weight for one in parts)
        moved = moved / (every if how.missing == "zero" else params.divisors())
        shares = shares / (every if how.missing == "zero" else buffers.divisors())
    if how.rule == "mix":
        moved = moved + lags.values
    if how.missed is not None:
        for chance, (first, behind) in zip(how.missed, pairwise(layout.starts), strict=True):
            moved[first.params : behind.params].div_(1 - chance)
    return Combined(
        layout.depth,
        moved.float().cpu(),
        buffers.mean().float().cpu(),
        shares.clamp(max=1.0).float().cpu(),
        most(layout, parts, layout.depth, device),
        params.held().cpu(),
    )


class _Sums:
    """For every number, sums over those who hold it: of what they say, and of their weights."""

    def __init__(self, size: int, device: torch.device) -> None:
        self.values = torch.zeros(size, dtype=torch.float64, device=device)
        self.weights = torch.zeros_like(self.values)

    def add(self, at: Places, values: Tensor, factor: float, weight: float) -> None:
        # Not by index_add_, which may round otherwise than the sum over whole layers.
        self.values[at] = self.values[at].add(values.to(self.values.device), alpha=factor)
        self.weights[at] += weight

    def held(self) -> Tensor:
        return self.weights != 0

    def divisors(self) -> Tensor:
        """The weights, and 1 where nobody holds the number."""
        return torch.where(self.held(), self.weights, 1.0)

    def mean(self) -> Tensor:
        return self.values / self.divisors()


def _places(update: Update, slims: Mapping[float, Slim], device: torch.device) -> tuple[Places, Places]:
    slim = None if update.width is None else slims.get(update.width)
    if slim is None:
        raise PolicyError(
            f"an update has width {update.width}, but known are {sorted(slims)}; give its thinner model"
        )
    return slim.params.to(device), slim.buffers.to(device)
