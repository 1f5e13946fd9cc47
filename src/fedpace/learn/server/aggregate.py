"""Aggregation as a pipeline: updates that passed `checks` are weighed, combined and corrected.

What comes out is the pseudo-gradient of the server optimiser (`slot.ModelSlot`). A policy's Aggregate
names the weights and the rule, the run's ServerSettings the rest.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpace.core.commands import check_missed
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.server.combine import check_weights, find_combiner, mean_buffers
from fedpace.learn.server.correct import correct_missed
from fedpace.learn.server.sums import Contributions
from fedpace.learn.server.weigh import CPU, MEAN, AggregationRule, ThinModels, weigh


@dataclass(frozen=True, eq=False)
class AggregatedUpdate:
    """Change of the last `depth` layers that updates come to; nobody touched the layers before.

    params: float32 suffix of deltas; buffers: float32 suffix of the carriers' mean values, and
    buffer_shares: how far towards it to go, in [0, 1]; counters: int64 suffix of new values.
    held: which numbers of `params` somebody has trained, None for all of them. All on one device.
    """

    depth: int
    params: Tensor
    buffers: Tensor
    buffer_shares: Tensor
    counters: Tensor
    held: Tensor | None = None


def aggregate(
    layout: Layout,
    updates: Sequence[Update],
    weights: Sequence[float],
    rule: AggregationRule = MEAN,
    lags: Sequence[Tensor | None] = (),
    slims: ThinModels | None = None,
    device: torch.device = CPU,
) -> AggregatedUpdate:
    """Make one update of many, on `device`; one of weight 0 carries nothing.

    lags, for rule "mix": what each client downloaded minus the slot's model, over all parameters;
    None where they are the same. slims: the thinner model for every width that updates have.
    Sums run on the updates' device.
    """
    check_weights(rule.name, len(updates), weights, len(lags))
    check_missed(rule.missed, rule.name, rule.missing, layout.depth)
    weighted = weigh(layout, updates, weights, rule, lags, slims or {})
    contributions = Contributions(layout, weighted, rule)
    params = find_combiner(rule.name).combine(contributions)
    correct_missed(params, layout, contributions.depth, rule)
    buffers, shares = mean_buffers(contributions)
    return AggregatedUpdate(
        contributions.depth,
        params.float().to(device),
        buffers.float().to(device),
        shares.float().to(device),
        max_counters(layout, contributions).to(device),
        None if contributions.held is None else contributions.held.to(device),
    )


def max_counters(layout: Layout, contributions: Contributions) -> Tensor:
    """Counters of the last layers: the largest of those who carry them."""
    start, end = layout.start(contributions.depth).counters, layout.start(0).counters
    if start == end:
        return torch.empty(0, dtype=torch.int64, device=contributions.device)
    counters = torch.full((end - start,), torch.iinfo(torch.int64).min, device=contributions.device)
    for one in contributions.updates:
        part = counters[layout.start(one.update.depth).counters - start :]
        torch.maximum(part, one.update.counters.to(part.device), out=part)
    return counters


def blend(
    layout: Layout, now: Weights, sources: Sequence[Weights], weights: Sequence[float]
) -> AggregatedUpdate:
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
    return AggregatedUpdate(
        layout.depth, delta, buffers.float(), torch.ones_like(now.buffers), counters
    )
