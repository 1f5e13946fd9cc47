"""Several partial updates made into one, layer by layer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedpace.core.errors import PolicyError
from fedpace.learn.layers import Layout
from fedpace.learn.weights import Update, Weights

Rule = Literal["mean", "sum", "mix"]


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
    rule: Rule = "mean",
    missing: Literal["skip", "zero"] = "skip",
    normalise: bool = False,
    lags: Sequence[Tensor | None] = (),
) -> Combined:
    """Combine `updates` as `core.commands.Aggregate` says; counters are the carriers' maximum.

    normalise: FedNova (Wang et al., NeurIPS 2020, eq. 8): within a layer every delta is brought to
    the carriers' weighted mean effort, delta_i * tau_eff / tau_i, tau_eff = sum(w tau) / sum(w).
    lags, for rule "mix": what each client downloaded minus the slot's model, over all parameters;
    None where they are the same.

    Buffers are statistics: they move towards the carriers' mean by the share of weight that the rule
    gives the carriers, 1 at most, and so never leave the range of what was seen.

    An update of weight 0 carries nothing. Sums run in float64 in the order given, element by
    element, so that they depend neither on threads nor, for whole-number weights of a single
    update, on rounding: the mean of one update is that update.
    """
    _check(updates, weights, rule, lags)
    pairs = [(update, weight) for update, weight in zip(updates, weights, strict=True) if weight]
    depth = max((update.depth for update, _ in pairs), default=0)
    start, end = layout.start(depth), layout.start(0)
    params = torch.zeros(end.params - start.params, dtype=torch.float64)
    buffers = torch.zeros(end.buffers - start.buffers, dtype=torch.float64)
    counters = torch.full((end.counters - start.counters,), torch.iinfo(torch.int64).min)
    for update, weight in pairs:
        at = layout.start(update.depth)
        alpha = weight / update.effort if normalise else weight
        params[at.params - start.params :].add_(update.params, alpha=alpha)
        buffers[at.buffers - start.buffers :].add_(update.buffers, alpha=weight)
        part = counters[at.counters - start.counters :]
        torch.maximum(part, update.counters, out=part)
    shares = torch.ones_like(buffers)
    every = sum(weight for _, weight in pairs)
    for layer in range(1, depth + 1):  # counted from the output
        carriers = [(update, weight) for update, weight in pairs if update.depth >= layer]
        carried = sum(weight for _, weight in carriers)
        first, behind = layout.start(layer), layout.start(layer - 1)
        part = params[first.params - start.params : behind.params - start.params]
        if normalise:
            part.mul_(sum(weight * update.effort for update, weight in carriers) / carried)
        share = carried
        if rule == "mean":
            total = every if missing == "zero" else carried
            part.div_(total)
            share = carried / total
        span = slice(first.buffers - start.buffers, behind.buffers - start.buffers)
        buffers[span].div_(carried)
        shares[span] = min(share, 1.0)
    for update, weight, lag in zip(updates, weights, lags, strict=False):
        if weight and lag is not None:
            first_param = layout.start(update.depth).params
            params[first_param - start.params :].add_(lag[first_param:], alpha=weight)
    return Combined(depth, params.float(), buffers.float(), shares.float(), counters)


def blend(
    layout: Layout, now: Weights, sources: Sequence[Weights], weights: Sequence[float]
) -> Combined:
    """The way from `now` to the weighted mean of whole models; counters are their maximum."""
    params = torch.zeros_like(now.params, dtype=torch.float64)
    buffers = torch.zeros_like(now.buffers, dtype=torch.float64)
    counters = now.counters
    for source, weight in zip(sources, weights, strict=True):
        share = weight / sum(weights)
        params.add_(source.params, alpha=share)
        buffers.add_(source.buffers, alpha=share)
        counters = torch.maximum(counters, source.counters)
    delta = params.sub_(now.params).float()
    return Combined(layout.depth, delta, buffers.float(), torch.ones_like(now.buffers), counters)


def _check(
    updates: Sequence[Update], weights: Sequence[float], rule: str, lags: Sequence[Tensor | None]
) -> None:
    if len(updates) != len(weights):
        raise PolicyError(
            f"{len(updates)} updates have {len(weights)} weights; give one weight an update"
        )
    if len(lags) != (len(updates) if rule == "mix" else 0):
        raise PolicyError(f"{len(lags)} lags for rule {rule!r}; a mix needs one an update, others none")
    if not all(math.isfinite(weight) for weight in weights):
        raise PolicyError(f"weights are {tuple(weights)}; give finite numbers")
    if rule == "mean" and updates and (min(weights) < 0 or sum(weights) <= 0):
        raise PolicyError(
            f"weights of a mean are {tuple(weights)}; none may be negative, and one must be positive"
        )
