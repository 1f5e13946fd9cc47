"""The recurrence of GRUs of many clients, with a backward pass of its own.

r = s(a_r + V_r h), z = s(a_z + V_z h), n = tanh(a_n + r (V_n h)), h' = n + z (h - n) with V h = W h + b
and a, the products with the inputs, which are computed for all steps before. s(x) = (1 + tanh(x/2)) / 2
instead of torch's sigmoid: it is quicker, and rounds a number alike wherever it lies in memory.

Going back, a gate's gradient is that of h' times a factor; factors of all steps are computed at once,
so that a step is one product over the weights and two operations on single numbers. What a product is
written into has the steps in front: a CPU batches products into one piece of memory only.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class GruRecurrence(Function):
    """States after each step, [clients, steps, samples, width] or with samples before steps.

    given: products with the inputs, likewise, gates in torch's order r, z, n; axis: that of the steps;
    start: [clients, samples, width]; weights: [clients, 3 width, width]; bias: [clients, 3 width];
    kernels: compute with ours.
    """

    @staticmethod
    def forward(
        ctx: Any,
        given: Tensor,
        start: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        axis: int,
        kernels: bool,
    ) -> Tensor:
        width, start = start.shape[-1], start.contiguous()
        gru = _kernels() if kernels else None
        given = given if gru is None else given.contiguous()
        inside = slice(0, 2 * width)
        turned = weights.transpose(1, 2).contiguous()
        turned[..., inside] *= 0.5
        shift = None if bias is None else bias.unsqueeze(1).clone()
        if shift is not None:
            shift[..., inside] *= 0.5
        found = given.new_empty((*given.shape[:-1], width))
        gates, news, products = (
            given.new_empty((given.shape[axis], *start.shape[:-1], many * width)) for many in (2, 1, 3)
        )
        half, state = given.new_full((), 0.5), start
        each = given.unbind(axis), gates, news, products, found.unbind(axis)
        for added, gate, new, product, out in zip(*each, strict=True):
            if shift is None:
                torch.bmm(state, turned, out=product)
            else:
                torch.baddbmm(shift, state, turned, out=product)
            if gru is not None:
                gru.forward(product, added, state, gate, new, out)
            else:
                torch.add(product[..., inside], added[..., inside], alpha=0.5, out=gate).tanh_()
                torch.add(half, gate, alpha=0.5, out=gate)
                reset, update = gate.chunk(2, -1)
                last = added[..., 2 * width :], reset, product[..., 2 * width :]
                torch.addcmul(*last, out=new).tanh_()
                torch.lerp(new, state, update, out=out)
            state = out
        ctx.save_for_backward(start, weights, gates, news, products[..., 2 * width :], found)
        ctx.how = axis, bias is not None, gru
        return found

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        (start, weights, gates, news, product, found), (axis, biased, gru) = ctx.saved_tensors, ctx.how
        gates, news, product = (one.movedim(0, axis) for one in (gates, news, product))
        resets, updates = gates.chunk(2, -1)
        before = earlier(start, found, axis)
        inner = (1 - updates).mul_(1 - news * news)
        flow = found.new_empty((*found.shape[:-1], 3, start.shape[-1]))
        torch.mul(inner * product, resets - resets * resets, out=flow[..., 0, :])
        torch.mul(before - news, updates - updates * updates, out=flow[..., 1, :])
        torch.mul(inner, resets, out=flow[..., 2, :])
        slopes = slopes.movedim(axis, 0).clone(memory_format=torch.contiguous_format)
        first = torch.zeros_like(start)
        flows = flow.flatten(-2)
        each = (one.unbind(axis) for one in (updates, flow, flows))
        below = (first, *slopes[:-1])
        for back, here, update, factors, rows in reversed([*zip(below, slopes, *each, strict=True)]):
            if gru is not None:
                gru.backward(factors, here, update, back)
            else:
                factors.mul_(here.unsqueeze(-2))
                back.addcmul_(here, update)
            back.baddbmm_(rows, weights)
        rows = flows.flatten(1, 2)
        of_weights = torch.bmm(rows.transpose(1, 2), before.flatten(1, 2))
        of_bias = rows.sum(1) if biased else None
        torch.mul(slopes.movedim(0, axis), inner, out=flow[..., 2, :])
        return flows, first, of_weights, of_bias, None, None


def _kernels() -> Any:
    from fedpace.learn.many.kernels import gru

    return gru


def earlier(start: Tensor, found: Tensor, axis: int) -> Tensor:
    """States before each step."""
    return torch.cat([start.unsqueeze(axis), found.narrow(axis, 0, found.shape[axis] - 1)], axis)
