"""Measures of waiting updates that policies ask for: norms, distances from a mean, estimates."""

import math
from collections.abc import Sequence

import torch

from fedpace.core.commands import Measure
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update
from fedpace.learn.server.aggregate import aggregate
from fedpace.learn.server.checks import is_finite, l2_norm
from fedpace.learn.server.combine import check_weights
from fedpace.learn.server.sums import add_scaled
from fedpace.learn.server.weigh import ThinModels, common_device, find_places


def measure(
    command: Measure, updates: Sequence[Update], layout: Layout, slims: ThinModels
) -> tuple[float, ...]:
    """One number per update: its L2 norm, one of the distances below, or what its client estimated.

    Weights of means are equal if none are given; an estimate that was not made is NaN.
    """
    weights = command.weights or (1.0,) * len(updates)
    match command.what:
        case "norm":
            return tuple(l2_norm(update.params) for update in updates)
        case "divergence":
            return divergences(layout, updates, weights, slims)
        case "spread":
            return spreads(layout, updates, weights, slims)
        case name:
            found = (update.estimates for update in updates)
            return tuple(math.nan if one is None else getattr(one, name) for one in found)


def divergences(
    layout: Layout, updates: Sequence[Update], weights: Sequence[float], slims: ThinModels
) -> tuple[float, ...]:
    """L2 distance of each update from the weighted mean, over the numbers that it carries."""
    aggregated = aggregate(layout, updates, weights, slims=slims)
    mean = torch.zeros(layout.start(0).params)  # 0 where only updates of weight 0 reach
    mean[layout.start(aggregated.depth).params :] = aggregated.params
    found = []
    for update in updates:
        at, _ = find_places(layout, update.depth, update.width, slims)
        found.append(l2_norm(update.params - mean[at].to(update.params.device)))
    return tuple(found)


def spreads(
    layout: Layout, updates: Sequence[Update], weights: Sequence[float], slims: ThinModels
) -> tuple[float, ...]:
    """L2 distance of each gradient from the weighted mean: delta_i of DYNAMITE (Algorithm 2).

    A number's mean is over those who hold it. A gradient that is missing or not finite has NaN and
    does not move the mean; NaN also where only gradients of weight 0 make up the mean. Sums are
    float64, in the order given, on the gradients' device.
    """
    check_weights("mean", len(updates), weights)
    terms = {}
    for number, (update, weight) in enumerate(zip(updates, weights, strict=True)):
        if update.gradient is not None and is_finite(update.gradient):
            at, _ = find_places(layout, layout.depth, update.width, slims)
            terms[number] = at, update.gradient, weight
    device = common_device(gradient for _, gradient, _ in terms.values())
    total = torch.zeros(layout.start(0).params, dtype=torch.float64, device=device)
    share = torch.zeros_like(total)
    add_scaled(total, list(terms.values()))
    for at, _, weight in terms.values():
        share[at] += weight
    mean = total.div_(share)
    found = [math.nan] * len(updates)
    for number, (at, gradient, _) in terms.items():
        found[number] = l2_norm(gradient.to(device) - mean[at])
    return tuple(found)
