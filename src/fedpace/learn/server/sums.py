"""Sums over weighted updates, and who carries which numbers: what rules are made of.

Sums run in float64 in the order given, element by element, so that they depend neither on threads
nor, for whole-number weights of a single update, on rounding: the mean of one update is that update.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from fedpace.learn.model.layers import Layout
from fedpace.learn.server.weigh import AggregationRule, Places, WeightedUpdate, common_device

_BLOCK = 65_536
"""Numbers that are summed at a time: half a megabyte, which a core's own cache holds."""

Term = tuple[Places, Tensor, float]
"""A vector of a sum, its places in it, and its factor."""


class CarriedSpan(NamedTuple):
    """A stretch of numbers: the weight of those who carry them, and their weighted mean effort.

    Both are one number where all have the same carriers, else vectors, where 0 is of nobody.
    """

    params: slice
    buffers: slice
    params_weight: float | Tensor
    buffers_weight: float | Tensor
    effort: float | Tensor


class Contributions:
    """Weighted updates over the last `depth` layers; sums are new vectors on the updates' device.

    size, buffers: numbers of these layers; total: weight of all updates; spans: layers with the same
    carriers, or, where an update holds the leading channels only, all numbers, whose carriers are
    those who hold them (HeteroFL, Diao et al. 2021, eq. 1 to 3); held: which parameters somebody
    carries, None for all of them.
    """

    def __init__(
        self, layout: Layout, updates: Sequence[WeightedUpdate], rule: AggregationRule
    ) -> None:
        self.updates, self.rule = updates, rule
        self.device = common_device(one.update.params for one in updates)
        self.total = sum([one.weight for one in updates])
        self.depth = max([one.update.depth for one in updates], default=0)
        self.elementwise = any(isinstance(one.params_at, Tensor) for one in updates)
        start, end = layout.start(self.depth), layout.start(0)
        self.size, self.buffers = end.params - start.params, end.buffers - start.buffers
        self.held: Tensor | None = None
        self.spans = [self._element_span()] if self.elementwise else self._layer_spans(layout)

    def sum_deltas(self) -> Tensor:
        """Sum of factor * delta over those who carry a number."""
        terms = [(one.params_at, one.update.params, one.factor) for one in self.updates]
        return self._sum(self.size, terms)

    def sum_buffers(self) -> Tensor:
        """Sum of weight * value over those who carry a buffer."""
        terms = [(one.buffers_at, one.update.buffers, one.weight) for one in self.updates]
        return self._sum(self.buffers, terms)

    def add_lags(self, values: Tensor) -> Tensor:
        """Add the sum of weight * lag to `values`, in place."""
        terms = [(one.params_at, one.lag, one.weight) for one in self.updates if one.lag is not None]
        if self.elementwise:
            return values.add_(self._sum(self.size, terms))
        add_scaled(values, terms)
        return values

    def _sum(self, size: int, terms: Sequence[Term]) -> Tensor:
        total = torch.zeros(size, dtype=torch.float64, device=self.device)
        if size:
            add_scaled(total, terms)
        return total

    def _layer_spans(self, layout: Layout) -> list[CarriedSpan]:
        spans, start = [], layout.start(self.depth)
        depths = [one.update.depth for one in self.updates]
        for behind, depth in pairwise([0, *sorted(set(depths))]):
            first, last = layout.start(depth), layout.start(behind)
            carriers = [one for one, own in zip(self.updates, depths, strict=True) if own >= depth]
            weight, effort = sum([one.weight for one in carriers]), 1.0
            if self.rule.normalise:
                effort = sum([one.weight * one.update.effort for one in carriers]) / weight
            params = slice(first.params - start.params, last.params - start.params)
            buffers = slice(first.buffers - start.buffers, last.buffers - start.buffers)
            spans.append(CarriedSpan(params, buffers, weight, weight, effort))
        return spans

    def _element_span(self) -> CarriedSpan:
        params, buffers = self._sum(self.size, ()), self._sum(self.buffers, ())
        for one in self.updates:
            params[one.params_at] += one.weight
            buffers[one.buffers_at] += one.weight
        self.held = params != 0
        effort: float | Tensor = 1.0
        if self.rule.normalise:
            each = [params.new_tensor(one.update.effort) for one in self.updates]
            terms = [
                (one.params_at, effort.expand(len(one.update.params)), one.weight)
                for one, effort in zip(self.updates, each, strict=True)
            ]
            effort = self._sum(self.size, terms) / divisor(params)
        return CarriedSpan(slice(None), slice(None), params, buffers, effort)


def divisor(weight: float | Tensor) -> float | Tensor:
    """The weight, and 1 where a vector says that nobody carries the number."""
    return torch.where(weight != 0, weight, 1.0) if isinstance(weight, Tensor) else weight


def add_scaled(total: Tensor, terms: Sequence[Term]) -> None:
    """Add each vector, times its factor, to `total` at its places, in the order given.

    On a CPU block by block, so that sums stay in the cache and every update is read once; added whole,
    torch would write a float64 copy of each, which is no harm if it is small. The numbers are the same.
    On a GPU each vector is one launch, which converts as it adds.
    """
    size, device = len(total), total.device
    slices = [(at.start, one.to(device), factor) for at, one, factor in terms if isinstance(at, slice)]
    if len(slices) < len(terms):
        for at, vector, factor in terms:
            # Not by index_add_, which may round otherwise than the sum over whole layers.
            total[at] = total[at].add(vector.to(device), alpha=factor)
        return
    if device.type != "cpu" or size <= _BLOCK:
        for place, vector, factor in slices:
            (total[place:] if place else total).add_(vector, alpha=factor)
        return
    scratch = torch.empty(_BLOCK, dtype=total.dtype)
    for first in range(0, size, _BLOCK):
        last = min(first + _BLOCK, size)
        for place, vector, factor in slices:
            begin = max(first, place)
            if begin < last:
                part = scratch[: last - begin].copy_(vector[begin - place : last - place])
                total[begin:last].add_(part, alpha=factor)
