"""How far clients' gradients are from their mean: delta_i of DYNAMITE (Algorithm 2)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Places = Tensor | slice
"""Where a client's numbers are in the full model's."""


def spreads(
    gradients: Sequence[Tensor | None], places: Sequence[Places], weights: Sequence[float], size: int
) -> tuple[float, ...]:
    """L2 distance of each gradient from the weighted mean, number by number of those who hold it.

    size: numbers of the full model. One that is missing or not finite has NaN and does not move the
    mean; NaN also where only gradients of weight 0 make up the mean. Sums are float64, in the order
    given, on the gradients' device.
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
