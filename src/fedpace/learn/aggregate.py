"""Several partial updates made into one, layer by layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedpace.core.errors import PolicyError
from fedpace.learn.layers import Layout
from fedpace.learn.weights import Update


@dataclass(frozen=True, eq=False)
class Combined:
    """What the last `depth` layers come to; the layers before were touched by nobody.

    params: float32 suffix of deltas; buffers: float32 suffix of the carriers' mean values, and
    buffer_shares: how far towards it to go, in [0, 1]; counters: int64 suffix of new values.
    """

    depth: int
    params: Tensor
    buffers: Tensor
    buffer_shares: Tensor
    counters: Tensor


def combine(
    layout: Layout,
    updates: Sequence[Update],
    weights: Sequence[float],
    rule: Literal["mean", "sum"] = "mean",
    missing: Literal["skip", "zero"] = "skip",
) -> Combined:
    """Combine `updates` as `core.commands.Aggregate` says; counters are the carriers' maximum.

    Buffers are statistics: they move towards the carriers' mean by the share of weight that the rule
    gives the carriers, 1 at most, and so never leave the range of what was seen.

    An update of weight 0 carries nothing. Sums run in float64 in the order given, element by
    element, so that they depend neither on threads nor, for whole-number weights of a single
    update, on rounding: the mean of one update is that update.
    """
    _check(updates, weights, rule)
    pairs = [(update, weight) for update, weight in zip(updates, weights, strict=True) if weight]
    depth = max((update.depth for update, _ in pairs), default=0)
    start, end = layout.start(depth), layout.start(0)
    params = torch.zeros(end.params - start.params, dtype=torch.float64)
    buffers = torch.zeros(end.buffers - start.buffers, dtype=torch.float64)
    counters = torch.full((end.counters - start.counters,), torch.iinfo(torch.int64).min)
    for update, weight in pairs:
        at = layout.start(update.depth)
        params[at.params - start.params :].add_(update.params, alpha=weight)
        buffers[at.buffers - start.buffers :].add_(update.buffers, alpha=weight)
        part = counters[at.counters - start.counters :]
        torch.maximum(part, update.counters, out=part)
    shares = torch.ones_like(buffers)
    every = sum(weight for _, weight in pairs)
    for layer in range(1, depth + 1):  # counted from the output
        carried = sum(weight for update, weight in pairs if update.depth >= layer)
        first, behind = layout.start(layer), layout.start(layer - 1)
        if rule == "mean":
            total = every if missing == "zero" else carried
            params[first.params - start.params : behind.params - start.params].div_(total)
        span = slice(first.buffers - start.buffers, behind.buffers - start.buffers)
        buffers[span].div_(carried)
        shares[span] = min(carried if rule == "sum" else carried / total, 1.0)
    return Combined(depth, params.float(), buffers.float(), shares.float(), counters)


def _check(updates: Sequence[Update], weights: Sequence[float], rule: str) -> None:
    if len(updates) != len(weights):
        raise PolicyError(
            f"{len(updates)} updates have {len(weights)} weights; give one weight an update"
        )
    if not all(math.isfinite(weight) for weight in weights):
        raise PolicyError(f"weights are {tuple(weights)}; give finite numbers")
    if rule == "mean" and updates and (min(weights) < 0 or sum(weights) <= 0):
        raise PolicyError(
            f"weights of a mean are {tuple(weights)}; none may be negative, and one must be positive"
        )
