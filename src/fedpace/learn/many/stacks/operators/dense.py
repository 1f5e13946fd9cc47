"""Dense layers of a stack: one batched product, whatever the shape of their inputs.

torch.vmap copies a client's weights for every sample where a sample has more than one row.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import functional

from fedpace.learn.many.stacks.function import by_kernels, cast, in_stack, shared


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    """Compute torch's linear within vmap; None where it is not one of numbers."""
    if not x.is_floating_point() or weight.ndim != 2:
        return None
    found: Tensor = _of_one(*cast(x, weight, bias), by_kernels(x))
    return found


class StackedLinear(Function):
    """x W^T + b of all clients: [clients, rows, inputs] by [clients, outputs, inputs].

    kernels: add biases by ours.
    """

    @staticmethod
    def forward(x: Tensor, weights: Tensor, bias: Tensor | None, kernels: bool) -> Tensor:
        if bias is None:
            return torch.bmm(x, weights.transpose(1, 2))
        if not kernels or not x.numel():
            return torch.baddbmm(bias.unsqueeze(1), x, weights.transpose(1, 2))
        from fedpace.learn.many.kernels import dense

        found = torch.bmm(x, weights.transpose(1, 2)).contiguous()
        dense.add_bias(found, bias.contiguous())
        return found

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weights, bias, _ = inputs
        ctx.save_for_backward(x, weights)
        ctx.biased, ctx.shared = bias is not None, None

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        x, weights = ctx.saved_tensors
        found: list[Tensor | None] = [None, None, None, None]
        if ctx.needs_input_grad[0]:
            found[0] = torch.bmm(slopes, weights)
        if ctx.needs_input_grad[1]:
            turned = slopes.transpose(1, 2)
            found[1] = torch.bmm(turned, x) if ctx.shared is None else ctx.shared.add(turned, x)
        if ctx.biased and ctx.needs_input_grad[2]:
            found[2] = slopes.sum(1)
        return tuple(found)


class SharedGradient:
    """The gradient of weights that several products have in common; the last of them hands it on."""

    def __init__(self, products: int) -> None:
        self._left = products
        self._sum: Tensor | None = None

    def add(self, slopes: Tensor, x: Tensor) -> Tensor | None:
        """Add the gradient of one product; gives their sum when all are there."""
        self._left -= 1
        self._sum = torch.bmm(slopes, x) if self._sum is None else self._sum.baddbmm_(slopes, x)
        return None if self._left else self._sum


def stacked_linear(x: Tensor, weights: Tensor, bias: Tensor | None, kernels: bool = False) -> Tensor:
    """x W^T + b of all clients, whatever lies between the clients' axis of x and the last one."""
    if shared(weights) and (bias is None or shared(bias)):
        return functional.linear(x, weights[0], None if bias is None else bias[0])
    rows = x.reshape(len(x), -1, x.shape[-1])
    found: Tensor = StackedLinear.apply(rows, weights, bias, kernels)  # type: ignore[no-untyped-call]
    return found.view(*x.shape[:-1], weights.shape[1])


_of_one = in_stack(stacked_linear, 3)
