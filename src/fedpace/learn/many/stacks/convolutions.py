"""Convolutions of a stack, where every client has weights of its own.

torch makes a grouped convolution of them, which cuDNN computes client by client, turning images from
one order of memory to another.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedpace.learn.many.stacks.function import in_stack


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    """Compute torch.conv2d by our kernels, within vmap; None where they cannot do it."""
    down, right = _pair(stride)
    even = down == right and _pair(dilation) == (1, 1) and groups == 1
    kinds = x.dtype in (torch.float32, torch.bfloat16)
    if not (x.ndim == 4 and kinds and even) or isinstance(padding, str):
        return None
    if torch.is_autocast_enabled("cuda"):
        kind = torch.get_autocast_dtype("cuda")
        x, weight, bias = x.to(kind), weight.to(kind), None if bias is None else bias.to(kind)
    exact = torch.get_float32_matmul_precision() == "highest"
    return _of_one(x, weight, bias, down, _pair(padding), exact)


class StackedConvolution(Function):
    """The convolutions of all clients: [clients, samples, channels, height, width]."""

    @staticmethod
    def forward(
        x: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        stride: int,
        padding: tuple[int, int],
        exact: bool,
    ) -> Tensor:
        sides = zip(x.shape[3:], weights.shape[3:], padding, strict=True)
        height, width = ((side + 2 * more - high) // stride + 1 for side, high, more in sides)
        return _convolve(x, weights, bias, stride, padding, (height, width), exact)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weights, bias, *ctx.how = inputs
        ctx.save_for_backward(x, weights)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        from fedpace.learn.many.kernels import convolution

        (x, weights), (stride, padding, exact) = ctx.saved_tensors, ctx.how
        (high, wide), (height, width) = weights.shape[3:], x.shape[3:]
        found: list[Tensor | None] = [None, None, None]
        if ctx.needs_input_grad[0]:
            turned = weights.transpose(1, 2).flip(-1, -2)
            rest = high - 1 - padding[0], wide - 1 - padding[1]
            apart = _apart(slopes, stride)
            found[0] = _convolve(apart, turned, None, 1, rest, (height, width), exact)
        if ctx.needs_input_grad[1]:
            whole = x.contiguous(), slopes.contiguous()
            slope = convolution.weights_of(*whole, high, wide, stride, padding, exact)
            found[1] = slope.to(x.dtype)
        if ctx.biased and ctx.needs_input_grad[2]:
            found[2] = slopes.sum((1, 3, 4))
        return *found, None, None, None


_of_one = in_stack(StackedConvolution.apply, 3)


def _apart(slopes: Tensor, stride: int) -> Tensor:
    """Put zeros between gradients, as if the convolution had gone in steps of 1."""
    if stride == 1:
        return slopes
    height, width = ((side - 1) * stride + 1 for side in slopes.shape[3:])
    found = slopes.new_zeros((*slopes.shape[:3], height, width))
    found[..., ::stride, ::stride] = slopes
    return found


def _convolve(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None,
    stride: int,
    padding: tuple[int, int],
    size: tuple[int, int],
    exact: bool,
) -> Tensor:
    from fedpace.learn.many.kernels import convolution

    bias = None if bias is None else bias.contiguous()
    return convolution.convolve(
        x.contiguous(), weights.contiguous(), bias, stride, padding, size, exact
    )


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
