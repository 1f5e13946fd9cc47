"""The recurrence of GRUs of many clients, with a backward pass of its own.

r = s(a_r + V_r h), z = s(a_z + V_z h), n = tanh(a_n + r (V_n h)), h' = n + z (h - n) with V h = W h + b
and a, the products with the inputs, which are computed for all steps before. s(x) = (1 + tanh(x/2)) / 2
instead of torch's sigmoid: it is quicker, and rounds a number alike wherever it lies in memory.

Going back, a gate's gradient is that of h' times a factor; factors of all steps are computed at once,
so that a step is one product over the weights and two operations on single numbers.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class GruRecurrence(Function):
    """States after each step: [steps, clients, samples, width].

    given: products with the inputs [steps, clients, samples, 3 width], gates in torch's order r, z, n;
    start: [clients, samples, width]; weights: [clients, 3 width, width]; bias: [clients, 3 width].
    """

    @staticmethod
    def forward(ctx: Any, given: Tensor, start: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
        width = start.shape[-1]
        inside = slice(0, 2 * width)
        turned = weights.transpose(1, 2).contiguous()
        turned[..., inside] *= 0.5
        shift = None if bias is None else bias.unsqueeze(1).clone()
        if shift is not None:
            shift[..., inside] *= 0.5
        steps = given.shape[:-1]
        found = given.new_empty((*steps, width))
        gates, news = given.new_empty((*steps, 2 * width)), given.new_empty((*steps, width))
        products = given.new_empty((*steps, 3 * width))
        half, state = given.new_full((), 0.5), start
        for added, gate, new, product, out in zip(given, gates, news, products, found, strict=True):
            if shift is None:
                torch.bmm(state, turned, out=product)
            else:
                torch.baddbmm(shift, state, turned, out=product)
            torch.add(product[..., inside], added[..., inside], alpha=0.5, out=gate).tanh_()
            torch.add(half, gate, alpha=0.5, out=gate)
            reset, update = gate.split(width, -1)
            torch.addcmul(added[..., 2 * width :], reset, product[..., 2 * width :], out=new).tanh_()
            torch.lerp(new, state, update, out=out)
            state = out
        ctx.save_for_backward(start, weights, gates, news, products[..., 2 * width :], found)
        ctx.biased = bias is not None
        return found

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        start, weights, gates, news, product, found = ctx.saved_tensors
        width = start.shape[-1]
        resets, updates = gates.split(width, -1)
        before = torch.cat([start.unsqueeze(0), found[:-1]])
        inner = (1 - updates).mul_(1 - news * news)
        flow = gates.new_empty((*gates.shape[:-1], 3, width))
        torch.mul(inner * product, resets - resets * resets, out=flow[..., 0, :])
        torch.mul(before - news, updates - updates * updates, out=flow[..., 1, :])
        torch.mul(inner, resets, out=flow[..., 2, :])
        slopes = slopes.clone(memory_format=torch.contiguous_format)
        first = torch.zeros_like(start)
        for step in reversed(range(len(slopes))):
            here, below = slopes[step], slopes[step - 1] if step else first
            flow[step].mul_(here.unsqueeze(-2))
            below.addcmul_(here, updates[step]).baddbmm_(flow[step].flatten(-2), weights)
        rows = _by_client(flow.flatten(-2))
        of_weights = torch.bmm(rows.transpose(1, 2), _by_client(before))
        of_bias = rows.sum(1) if ctx.biased else None
        torch.mul(slopes, inner, out=flow[..., 2, :])
        return flow.flatten(-2), first, of_weights, of_bias


def _by_client(steps: Tensor) -> Tensor:
    """[steps, clients, samples, ...] as [clients, steps and samples, ...]."""
    return steps.transpose(0, 1).flatten(1, 2)
