"""Measures of waiting updates that policies ask for: norms, distances from a mean, estimates."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedpace.core.commands import Measure
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Update
from fedpace.learn.model.width import Slim
from fedpace.learn.server.aggregate import aggregate
from fedpace.learn.server.checks import l2_norm
from fedpace.learn.server.combine import check_weights
from fedpace.learn.server.weigh import Places, thin_places, update_places


def measure(
    command: Measure, updates: Sequence[Update], layout: Layout, slims: Mapping[float, Slim]
) -> tuple[float, ...]:
    """One number per update, as the command asks.

    norm: L2 norm of its parameters; divergence: their L2 distance from the weighted mean (equal
    weights if none are given), over the numbers that the update carries; spread: that of its
    gradient from theirs, NaN where it brings none or one that is not finite, which then counts for
    nobody; the others are what the client has estimated, NaN where it has not.
    """
    weights = command.weights or (1.0,) * len(updates)
    match command.what:
        case "norm":
            return tuple(l2_norm(update.params) for update in updates)
        case "divergence":
            return divergences(layout, updates, weights, slims)
        case "spread":
            check_weights("mean", len(updates), weights)
            gradients = [update.gradient for update in updates]
            places = [_gradient_places(update, slims) for update in updates]
            return spreads(gradients, places, weights, layout.start(0).params)
        case name:
            found = (update.estimates for update in updates)
            return tuple(math.nan if one is None else getattr(one, name) for one in found)


def divergences(
    layout: Layout, updates: Sequence[Update], weights: Sequence[float], slims: Mapping[float, Slim]
) -> tuple[float, ...]:
    """L2 distance of each update from the weighted mean, over the numbers that it carries."""
    together = aggregate(layout, updates, weights, slims=slims)
    mean = torch.zeros(layout.start(0).params)  # 0 where only updates of weight 0 reach
    mean[layout.start(together.depth).params :] = together.params
    found = []
    for update in updates:
        own = mean[update_places(layout, update, slims)[0]]
        found.append(l2_norm(update.params - own.to(update.params.device)))
    return tuple(found)


def spreads(
    gradients: Sequence[Tensor | None], places: Sequence[Places], weights: Sequence[float], size: int
) -> tuple[float, ...]:
    """L2 distance of each gradient from the weighted mean: delta_i of DYNAMITE (Algorithm 2).

    A number's mean is over those who hold it. size: numbers of the full model. A gradient that is
    missing or not finite has NaN and does not move the mean; NaN also where only gradients of weight
    0 make up the mean. Sums are float64, in the order given, on the gradients' device.
    """
    held = [one for one in gradients if one is not None]
    device = next((one.device for one in held if one.device.type != "cpu"), torch.device("cpu"))
    known = [
        (number, gradient.to(device), place if isinstance(place, slice) else place.to(device))
        for number, (gradient, place) in enumerate(zip(gradients, places, strict=True))
        if gradient is not None and bool(torch.isfinite(gradient).all())
    ]
    total = torch.zeros(size, dtype=torch.float64, device=device)
    shares = torch.zeros_like(total)
    for number, gradient, place in known:
        total[place] = total[place].add(gradient, alpha=weights[number])
        shares[place] += weights[number]
    mean = total / shares
    found = [math.nan] * len(gradients)
    for number, gradient, place in known:
        found[number] = float(torch.linalg.vector_norm(gradient - mean[place]))
    return tuple(found)


def _gradient_places(update: Update, slims: Mapping[float, Slim]) -> Places:
    """Where the numbers of its gradient are; it is over all layers, whatever the update's depth."""
    return slice(None) if update.width in (None, 1.0) else thin_places(update.width, slims)[0]
