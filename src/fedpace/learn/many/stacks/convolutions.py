"""Convolutions of a stack, where every client has weights of its own.

torch makes a grouped convolution of them, which cuDNN computes client by client, turning images from
one order of memory to another.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedpace.learn.many.stacks.function import SampleCounts, in_stack
from fedpace.learn.many.stacks.operators.depthwise import convolve_depthwise, fits


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    counts: SampleCounts | None = None,
) -> Tensor | None:
    """Compute torch.conv2d by our kernels, within vmap; None where they cannot do it."""
    down, right = _pair(stride)
    kinds = x.dtype in (torch.float32, torch.bfloat16)
    if not (x.ndim == 4 and kinds and _pair(dilation) == (1, 1)) or isinstance(padding, str):
        return None
    if weight.shape[-1] % 2 == 0 and right % 2 and right > 1:
        return None  # Triton 3.6 takes pairs of taps for aligned there, and the GPU ends the process
    deep = fits(x, weight, groups)
    # Another channel that is a group of its own has too little for our kernels; torch has one for that.
    if not deep and (down != right or (groups > 1 and weight.shape[1] == 1)):
        return None
    if torch.is_autocast_enabled("cuda"):
        kind = torch.get_autocast_dtype("cuda")
        x, weight, bias = x.to(kind), weight.to(kind), None if bias is None else bias.to(kind)
    found: Tensor
    if deep:
        found = convolve_depthwise(x, weight, bias, (down, right), _pair(padding))
    else:
        exact = torch.get_float32_matmul_precision() == "highest"
        own = None if counts is None or groups > 1 else counts.of(x)
        found = _of_one(x, weight, bias, groups, down, _pair(padding), exact, own)
    return found


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
        counts: Tensor | None = None,
    ) -> Tensor:
        from fedpace.learn.many.kernels import convolution

        sides = zip(x.shape[3:], weights.shape[3:], padding, strict=True)
        height, width = ((side + 2 * more - high) // stride + 1 for side, high, more in sides)
        whole = x.contiguous(), weights.contiguous(), None if bias is None else bias.contiguous()
        return convolution.convolve(*whole, stride, padding, (height, width), exact, counts)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weights, bias, *ctx.how = inputs if len(inputs) == 7 else (*inputs, None)
        ctx.save_for_backward(x, weights)
        ctx.biased, ctx.left = bias is not None, None

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        from fedpace.learn.many.kernels import convolution

        (x, weights), (stride, padding, exact, counts) = ctx.saved_tensors, ctx.how
        found: list[Tensor | None] = [None, None, None]
        slopes = slopes.contiguous()
        if ctx.needs_input_grad[0]:
            whole = slopes, weights.contiguous()
            into = more = None
            left = None if ctx.left is None else ctx.left.take()
            if left is not None and ctx.left.stride == 1:
                into = left.view(x.shape)
            elif left is not None and ctx.left.stride == stride:
                more = left
            elif left is not None:
                into = _among_zeros(left, x.shape, ctx.left.stride)
            added = into, counts, more
            found[0] = convolution.images_of(*whole, stride, padding, x.shape[3:], exact, *added)
        if ctx.needs_input_grad[1]:
            high, wide = weights.shape[3:]
            shape = high, wide, stride, padding
            slope = convolution.weights_of(x.contiguous(), slopes, *shape, exact, counts)
            found[1] = slope.to(x.dtype)
        if ctx.biased and ctx.needs_input_grad[2]:
            found[2] = slopes.sum((1, 3, 4))
        return *found, None, None, None, None


def _together(x: Tensor, weights: Tensor, bias: Tensor | None, groups: int, *how: Any) -> Tensor:
    """Convolve; the groups of a client are clients of their own to the kernels."""
    clients, samples = x.shape[:2]
    if groups > 1:
        x = x.view(clients, samples, groups, -1, *x.shape[3:]).transpose(1, 2).flatten(0, 1)
        weights = weights.reshape(clients * groups, -1, *weights.shape[2:])
        bias = None if bias is None else bias.reshape(clients * groups, -1)
    found: Tensor = StackedConvolution.apply(x, weights, bias, *how)  # type: ignore[no-untyped-call]
    if groups == 1:
        return found
    found = found.view(clients, groups, *found.shape[1:]).transpose(1, 2)
    return found.flatten(2, 3)


_of_one = in_stack(_together, 3)


class StackedShortcut(Function):
    """The shortcuts of all clients around layers with a stride: [clients, samples, channels, ...]."""

    @staticmethod
    def forward(x: Tensor, stride: int, channels: int) -> Tensor:
        part, own = x[..., ::stride, ::stride], x.shape[2]
        found = x.new_empty((*x.shape[:2], channels, *part.shape[3:]))
        found[:, :, :own] = part
        found[:, :, own:] = 0
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.stride, _ = inputs
        ctx.shape, ctx.left = x.shape, None

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        part: Tensor | None = slopes.contiguous()[:, :, : ctx.shape[2]]
        if ctx.left is not None:
            part = ctx.left.leave(part, ctx.stride)
        return None if part is None else _among_zeros(part, ctx.shape, ctx.stride), None, None


def _among_zeros(part: Tensor, shape: torch.Size, stride: int) -> Tensor:
    """Images of a shape, of which `part` is every stride-th row and column, and the rest is zero."""
    found = part.new_zeros(shape)
    found[..., ::stride, ::stride] = part
    return found


def leave_out(x: Tensor, stride: int, channels: int) -> Tensor | None:
    """Compute `shortcut` within vmap."""
    if x.ndim != 4 or channels < x.shape[1]:
        return None
    found: Tensor = _shortcut_of_one(x, stride, channels)
    return found


_shortcut_of_one = in_stack(StackedShortcut.apply, 1)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])
