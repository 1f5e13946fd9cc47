"""Dense layers of a stack: one batched product, whatever the shape of their inputs.

torch.vmap copies a client's weights for every sample where a sample has more than one row.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from fedpace.learn.many.stacks.function import cast, in_stack, shared


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Compute torch's linear within vmap; None where it is not one of numbers."""
    if not x.is_floating_point() or weight.ndim != 2:
        return None
    found: Tensor = _of_one(*cast(x, weight, bias))
    return found


class StackedLinear(Function):
    """x W^T + b of all clients: [clients, rows, inputs] by [clients, outputs, inputs]."""

    @staticmethod
    def forward(x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        if bias is None:
            return torch.bmm(x, weights.transpose(1, 2))
        return torch.baddbmm(bias.unsqueeze(1), x, weights.transpose(1, 2))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weights, bias = inputs
        ctx.save_for_backward(x, weights)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        x, weights = ctx.saved_tensors
        found: list[Tensor | None] = [None, None, None]
        if ctx.needs_input_grad[0]:
            found[0] = torch.bmm(slopes, weights)
        if ctx.needs_input_grad[1]:
            found[1] = torch.bmm(slopes.transpose(1, 2), x)
        if ctx.biased and ctx.needs_input_grad[2]:
            found[2] = slopes.sum(1)
        return tuple(found)


def stacked_linear(x: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b of all clients, whatever lies between the clients' axis of x and the last one."""
    if shared(weights) and (bias is None or shared(bias)):
        return functional.linear(x, weights[0], None if bias is None else bias[0])
    rows = x.reshape(len(x), -1, x.shape[-1])
    found: Tensor = StackedLinear.apply(rows, weights, bias)  # type: ignore[no-untyped-call]
    return found.view(*x.shape[:-1], weights.shape[1])


_of_one = in_stack(stacked_linear, 3)
