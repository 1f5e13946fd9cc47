"""Batch normalisation of a stack by kernels of our own, with the ReLU that comes behind it.

torch's operators read and write all images ten times there and back.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedpace.learn.many.stacks.function import in_stack, shared

_KINDS = (torch.float32, torch.bfloat16)


def in_kernels(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    more: Tensor | None,
) -> bool:
    """Say whether the kernels can do it."""
    whole = weight is not None and bias is not None and x.numel() > 0
    kept = (one for one in (weight, bias, mean, variance) if one is not None)
    added = more is None or (more.dtype in _KINDS and more.shape == x.shape)
    return whole and added and x.dtype in _KINDS and all(one.dtype == torch.float32 for one in kept)


def normalise_in_kernels(x: Tensor, *given: Any) -> Tensor:
    """Normalise within vmap. given: as `_together` takes it, of one client."""
    found: Tensor = _of_one(x, *given)
    return found


class NormalisedBatches(Function):
    """The normalisations of all clients: [clients, samples, channels, places].

    running: means and variances, written in place; real, held: floats and bytes, or None.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        factors: Tensor,
        shifts: Tensor,
        more: Tensor | None,
        running: tuple[Tensor, Tensor] | None,
        real: Tensor | None,
        held: Tensor | None,
        training: bool,
        momentum: float,
        eps: float,
        relu: bool,
    ) -> Tensor:
        from fedpace.learn.many.kernels import batch_norm

        whole = x.contiguous(), factors.contiguous(), shifts.contiguous()
        more = None if more is None else more.contiguous()
        found, *kept = batch_norm.normalise(
            *whole, running, real, held, training, momentum, eps, relu, more
        )
        ctx.relu, ctx.training, ctx.more = relu, training, None if more is None else more.dtype
        ctx.left = None
        y = found if relu and more is not None else None
        ctx.save_for_backward(*whole, *kept, real if training else None, y)
        return found

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        from fedpace.learn.many.kernels import batch_norm

        x, factors, shifts, means, scales, shares, real, y = ctx.saved_tensors
        kept = means, scales, shares if ctx.training else None, real
        how = slopes.contiguous(), ctx.relu, y, ctx.more
        *others, of_more = batch_norm.slopes_of(x, factors, shifts, *kept, *how)
        if ctx.left is not None:
            of_more = ctx.left.leave(of_more)
        return *others, of_more, *[None] * 7


def _together(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    more: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    real: Tensor | None,
    held: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    relu: bool,
) -> Tensor:
    shape = *x.shape[:3], -1
    running = None
    if mean is not None and variance is not None:
        running = mean.contiguous(), variance.contiguous()
    given = (
        x.reshape(shape),
        weight,
        bias,
        None if more is None else more.reshape(shape),
        running,
        None if real is None else real.contiguous(),
        None if held is None else held.contiguous().view(torch.uint8),
    )
    how = training, momentum, eps, relu
    found: Tensor = NormalisedBatches.apply(*given, *how)  # type: ignore[no-untyped-call]
    if running is not None and training:
        for one, new in zip((mean, variance), running, strict=True):
            # Statistics that all clients share are constants.
            if one is not None and not one.is_contiguous() and not shared(one):
                one.copy_(new)
    return found.view(x.shape)


_of_one = in_stack(_together, 8)
