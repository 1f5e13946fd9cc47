"""The recurrence of LSTMs of many clients, with a backward pass of its own.

i, f, o = s(a + V h), g = tanh(a + V h), c' = f c + i g, h' = o tanh(c'), with a, V and s as in `gru`,
and factors of gradients that are computed for all steps at once.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


class LstmRecurrence(Function):
    """States after each step, [steps, clients, samples, width], and cells after the last one.

    given: products with the inputs [steps, clients, samples, 4 width], gates in torch's order i, f, g,
    o; start, cell: [clients, samples, width]; weights: [clients, 4 width, width]; bias: [clients,
    4 width].
    """

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, start: Tensor, cell: Tensor, weights: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        width = start.shape[-1]
        scale = given.new_full((4, width), 0.5)
        shift = scale.clone()
        scale[2], shift[2] = 1, 0
        scale, shift = scale.flatten(), shift.flatten()
        turned = weights.transpose(1, 2) * scale
        turned = turned.contiguous()
        added = None if bias is None else (bias * scale).unsqueeze(1)
        steps = given.shape[:-1]
        gates = given.new_empty((*steps, 4 * width))
        found, cells, bounded = (given.new_empty((*steps, width)) for _ in range(3))
        state, old = start, cell
        for inputs, gate, out, new, tame in zip(given, gates, found, cells, bounded, strict=True):
            if added is None:
                torch.bmm(state, turned, out=gate)
            else:
                torch.baddbmm(added, state, turned, out=gate)
            gate.addcmul_(inputs, scale).tanh_()
            torch.addcmul(shift, gate, scale, out=gate)
            enters, stays, candidate, shown = gate.split(width, -1)
            torch.mul(stays, old, out=new).addcmul_(enters, candidate)
            torch.mul(shown, torch.tanh(new, out=tame), out=out)
            state, old = out, new
        ctx.save_for_backward(start, cell, weights, gates, found, cells, bounded)
        ctx.biased = bias is not None
        return found, cells[-1].clone()

    @staticmethod
    def backward(ctx: Any, slopes: Tensor, of_last: Tensor) -> tuple[Any, ...]:
        start, cell, weights, gates, found, cells, bounded = ctx.saved_tensors
        width = start.shape[-1]
        enters, stays, candidate, shown = gates.split(width, -1)
        flow = gates.new_empty((*gates.shape[:-1], 4, width))
        torch.mul(candidate, enters - enters * enters, out=flow[..., 0, :])
        earlier = torch.cat([cell.unsqueeze(0), cells[:-1]])
        torch.mul(earlier, stays - stays * stays, out=flow[..., 1, :])
        torch.mul(enters, 1 - candidate * candidate, out=flow[..., 2, :])
        torch.mul(bounded, shown - shown * shown, out=flow[..., 3, :])
        through = (1 - bounded * bounded).mul_(shown)
        slopes = slopes.clone(memory_format=torch.contiguous_format)
        of_cell, first = of_last.clone(), torch.zeros_like(start)
        for step in reversed(range(len(slopes))):
            here, below = slopes[step], slopes[step - 1] if step else first
            of_cell.addcmul_(here, through[step])
            flow[step, ..., :3, :].mul_(of_cell.unsqueeze(-2))
            flow[step, ..., 3, :].mul_(here)
            of_cell.mul_(stays[step])
            below.baddbmm_(flow[step].flatten(-2), weights)
        before = torch.cat([start.unsqueeze(0), found[:-1]])
        rows = flow.flatten(-2).transpose(0, 1).flatten(1, 2)
        of_weights = torch.bmm(rows.transpose(1, 2), before.transpose(0, 1).flatten(1, 2))
        return flow.flatten(-2), first, of_cell, of_weights, rows.sum(1) if ctx.biased else None
