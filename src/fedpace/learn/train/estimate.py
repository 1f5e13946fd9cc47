"""Estimates of a client's loss around a model: its value and gradient, noise, smoothness.

F is the mean loss over one batch, in eval mode, with the statistics that the client got: a function
of the parameters alone, without draws.
"""

import math

import torch
from torch import Tensor

from fedpace.learn.device import drawing
from fedpace.learn.model.layers import BoundModel
from fedpace.learn.model.weights import BatchEstimates, Weights
from fedpace.learn.train.steps import Loss
from fedpace.learn.tree import Tree, call, count_rows, device_of, split_rows

_CHUNKS = 16


def estimate(
    bound: BoundModel, loss: Loss, inputs: Tree, targets: Tree, old: Weights
) -> tuple[BatchEstimates, Tensor]:
    """Estimates at `old`, and between it and what the model holds now, w; the model stays as it is.

    gradient: |grad F(old)|; noise: sigma, where sigma^2 is the variance of one sample's gradient at
    `old` summed over its numbers, NaN for a batch of one; smoothness: |grad F(w) - grad F(old)| /
    |w - old|; loss: F(old); slope: |F(w) - F(old)| / |w - old|; change: the same over |w - old|^2;
    ratios are NaN where nothing moved.
    Also grad F(old) itself, float64 and flat, where the model is.
    """
    now = bound.read(bound.layout.depth)
    modes = [(module, module.training) for module in bound.model.modules()]
    bound.model.eval()
    try:
        with drawing(device_of(inputs)):  # there are models that draw in eval mode
            bound.load(old)
            before, here = _loss_at(bound, loss, inputs, targets)
            noise = _noise(bound, loss, inputs, targets)
            bound.load(Weights(now.params, old.buffers, old.counters))
            after, there = _loss_at(bound, loss, inputs, targets)
    finally:
        bound.load(now)
        for module, training in modes:
            module.training = training
    moved = _norm(now.params.double() - old.params)
    smoothness, slope = math.nan, math.nan
    if moved:
        smoothness, slope = _norm(there - here) / moved, abs(float(after - before)) / moved
    change = slope / moved if moved else math.nan
    return BatchEstimates(_norm(here), noise, smoothness, float(before), change, slope), here


def _loss_at(bound: BoundModel, loss: Loss, inputs: Tree, targets: Tree) -> tuple[Tensor, Tensor]:
    """Mean loss at the weights that the model holds, and its gradient.

    Both are float64; the gradient is flat, and zero for parameters that are not used.
    """
    params = bound.params(bound.layout.depth)
    value = loss(call(bound.model, inputs), targets)
    found: tuple[Tensor | None, ...] = (None,) * len(params)
    if value.requires_grad:
        found = torch.autograd.grad(value, params, allow_unused=True)
    each = [
        (torch.zeros_like(param) if grad is None else grad).reshape(-1).double()
        for param, grad in zip(params, found, strict=True)
    ]
    return value.detach().double(), torch.cat(each)


def _noise(bound: BoundModel, loss: Loss, inputs: Tree, targets: Tree) -> float:
    """Root of the variance of a sample's gradient, from the means of equal chunks of the batch.

    The mean of s samples has a share 1/s of the variance of one: sigma^2 = s * sum_c |g_c - mean|^2 /
    (C - 1) is without bias. Samples that fill no chunk are left out. Means and squares are carried on
    from chunk to chunk (Welford), which takes the memory of two gradients.
    """
    samples = count_rows(inputs)
    chunks = min(_CHUNKS, samples)
    if chunks < 2:
        return math.nan
    size = samples // chunks
    parts = zip(split_rows(inputs, size)[:chunks], split_rows(targets, size)[:chunks], strict=True)
    mean, squares = torch.zeros((), dtype=torch.float64, device=device_of(inputs)), 0.0
    for number, (some, wanted) in enumerate(parts, 1):
        _, gradient = _loss_at(bound, loss, some, wanted)
        away = gradient - mean
        mean = mean + away / number
        squares += float(away @ (gradient - mean))
    return math.sqrt(max(size * squares / (chunks - 1), 0.0))


def _norm(vector: Tensor) -> float:
    return float(torch.linalg.vector_norm(vector))
