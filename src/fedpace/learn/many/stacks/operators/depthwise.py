"""Depthwise convolutions of a stack, by kernels of our own.

torch makes one grouped convolution of all clients' channels, whose gradients take many times as long
as reading the images does.
"""

from typing import Any

from torch import Tensor
from torch.autograd import Function

from fedpace.learn.many.stacks.function import in_stack

_TAPS = 64
"""Places of a filter at most: kernels are unrolled over them."""


def fits(x: Tensor, weight: Tensor, groups: int) -> bool:
    """Say whether every channel is a group, with one filter, and our kernels are made for its size."""
    channels, each, high, wide = weight.shape
    one_each = groups == channels == x.shape[1] and each == 1 and groups > 1
    return one_each and high * wide <= _TAPS and x.numel() > 0


class StackedDepthwise(Function):
    """The convolutions of all clients: [clients, samples, channels, height, width].

    weights: [clients, channels, height, width].
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        stride: tuple[int, int],
        padding: tuple[int, int],
    ) -> Tensor:
        from fedpace.learn.many.kernels import depthwise

        each = zip(x.shape[3:], weights.shape[2:], stride, padding, strict=True)
        height, width = ((side + 2 * more - high) // apart + 1 for side, high, apart, more in each)
        x, weights = x.contiguous(), weights.contiguous()
        ctx.save_for_backward(x, weights)
        ctx.how, ctx.biased = (stride, padding), bias is not None
        bias = None if bias is None else bias.contiguous()
        return depthwise.convolve(x, weights, bias, stride, padding, (height, width))

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        from fedpace.learn.many.kernels import depthwise

        x, weights = ctx.saved_tensors
        slopes, (high, wide), (height, width) = slopes.contiguous(), weights.shape[2:], x.shape[3:]
        stride, padding = ctx.how
        found: list[Tensor | None] = [None, None, None]
        if ctx.needs_input_grad[0]:
            found[0] = depthwise.images_of(slopes, weights, stride, padding, (height, width))
        if ctx.needs_input_grad[1]:
            found[1] = depthwise.weights_of(x, slopes, (high, wide), stride, padding)
        if ctx.biased and ctx.needs_input_grad[2]:
            found[2] = slopes.sum((1, 3, 4))
        return *found, None, None


def _together(x: Tensor, weights: Tensor, bias: Tensor | None, *how: Any) -> Tensor:
    found: Tensor = StackedDepthwise.apply(x, weights.squeeze(2), bias, *how)  # type: ignore[no-untyped-call]
    return found


convolve_depthwise = in_stack(_together, 3)
"""Convolve within vmap: images, weights [channels, 1, height, width], bias; stride and padding."""
