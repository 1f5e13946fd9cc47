"""Several partial updates made into one, layer by layer."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Combined, Update, Weights
from fedpace.learn.model.width import Slim
from fedpace.learn.server.elementwise import combine_numbers
from fedpace.learn.server.parts import How, Missing, Part, Rule, make_parts, most

_BLOCK = 65_536
"""Numbers that are summed at a time: half a megabyte, which a core's own cache holds."""


def combine(
    layout: Layout,
    updates: Sequence[Update],
    weights: Sequence[float],
    rule: Rule = "mean",
    missing: Missing = "skip",
    normalise: bool = False,
    lags: Sequence[Tensor | None] = (),
    missed: Sequence[float] | None = None,
    slims: Mapping[float, Slim] | None = None,
) -> Combined:
    """Combine `updates` as `core.commands.Aggregate` says; counters are the carriers' maximum.

    normalise: FedNova (Wang et al., NeurIPS 2020, eq. 8): within a layer every delta is brought to
    the carriers' weighted mean effort, delta_i * tau_eff / tau_i, tau_eff = sum(w tau) / sum(w).
    lags, for rule "mix": what each client downloaded minus the slot's model, over all parameters;
    None where they are the same.
    missed: ADEL-FL, eq. 5 in deltas: a layer's mean over its carriers is divided by 1 - p_l.
    slims: the thinner model for every width that updates have.

    Buffers are statistics: they move towards the carriers' mean by the share of weight that the rule
    gives the carriers, 1 at most, and so never leave the range of what was seen; that layers are
    missed at times is no reason to.

    An update of weight 0 carries nothing. Sums run in float64 in the order given, element by
    element, so that they depend neither on threads nor, for whole-number weights of a single
    update, on rounding: the mean of one update is that update. They run on the updates' device.
    """
    how = How(rule, missing, normalise, missed)
    how.check(layout)
    parts = make_parts(updates, weights, lags, rule)
    devices = (one.update.params.device for one in parts)
    device = next((one for one in devices if one.type != "cpu"), torch.device("cpu"))
    if any(one.thin for one in parts):
        return combine_numbers(layout, parts, how, slims or {}, device)
    depth = max((one.update.depth for one in parts), default=0)
    start, end = layout.start(depth), layout.start(0)
    params = torch.zeros(end.params - start.params, dtype=torch.float64, device=device)
    buffers = torch.zeros(end.buffers - start.buffers, dtype=torch.float64, device=device)
    starts = [layout.start(one.update.depth) for one in parts]
    each = list(zip(starts, parts, strict=True))
    _add(
        params,
        [(at.params - start.params, one.update.params.to(device), one.factor(how)) for at, one in each],
    )
    if len(buffers):
        _add(
            buffers,
            [
                (at.buffers - start.buffers, one.update.buffers.to(device), one.weight)
                for at, one in each
            ],
        )
    shares = torch.ones_like(buffers)
    for layer in range(1, depth + 1):  # counted from the output
        carriers = [one for one in parts if one.update.depth >= layer]
        first, behind = layout.start(layer), layout.start(layer - 1)
        part = params[first.params - start.params : behind.params - start.params]
        share = _finish(part, parts, carriers, how)
        if missed is not None:
            part.div_(1 - missed[layout.depth - layer])
        if len(buffers):
            span = slice(first.buffers - start.buffers, behind.buffers - start.buffers)
            buffers[span].div_(sum(one.weight for one in carriers))
            shares[span] = min(share, 1.0)
    for one in parts:
        if one.lag is not None:
            at = layout.start(one.update.depth)
            params[at.params - start.params :].add_(one.lag[at.params :].to(device), alpha=one.weight)
    return Combined(
        depth,
        params.float().cpu(),
        buffers.float().cpu(),
        shares.float().cpu(),
        most(layout, parts, depth, device),
    )


def _add(total: Tensor, terms: Sequence[tuple[int, Tensor, float]]) -> None:
    """Add each vector, times its factor, to `total` from a place on, in the order given.

    On a CPU block by block, so that sums stay in the cache and every update is read once; added whole,
    torch would write a float64 copy of each, which is no harm if it is small. The numbers are the same.
    """
    if total.device.type == "cpu" and len(total) <= _BLOCK:
        for place, vector, factor in terms:
            total[place:].add_(vector, alpha=factor)
        return
    block = len(total) if total.device.type != "cpu" else min(_BLOCK, len(total))
    scratch = torch.empty(block, dtype=total.dtype, device=total.device)
    for first in range(0, len(total), max(block, 1)):
        last = min(first + block, len(total))
        for place, vector, factor in terms:
            begin = max(first, place)
            if begin < last:
                part = scratch[: last - begin].copy_(vector[begin - place : last - place])
                total[begin:last].add_(part, alpha=factor)


def _finish(part: Tensor, parts: Sequence[Part], carriers: Sequence[Part], how: How) -> float:
    """Make a layer's sum what the rule says; the result is the weight that it gives the carriers."""
    carried = sum(one.weight for one in carriers)
    if how.normalise:
        part.mul_(sum(one.weight * one.update.effort for one in carriers) / carried)
    if how.rule != "mean":
        return carried
    total = sum(one.weight for one in parts) if how.missing == "zero" else carried
    part.div_(total)
    return carried / total


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
