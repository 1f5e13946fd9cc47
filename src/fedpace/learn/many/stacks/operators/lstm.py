"""The recurrence of LSTMs of many clients, with a backward pass of its own.

i, f, o = s(a + W h), g = tanh(a + W h), c' = f c + i g, h' = o tanh(c'), with a, the products with the
inputs and all biases, s as in `gru`, and factors of gradients that are computed for all steps at once.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedpace.learn.many.stacks.operators.gru import earlier


class LstmRecurrence(Function):
    """States after each step, and cells after the last one; see GruRecurrence.

    Gates are in torch's order i, f, g, o, and those of `given` and `weights` are `halved`.
    """

    @staticmethod
    def forward(
        ctx: Any, given: Tensor, start: Tensor, cell: Tensor, weights: Tensor, axis: int
    ) -> tuple[Tensor, Tensor]:
        width = start.shape[-1]
        scale = halved(given, width)
        shift = (scale == 0.5).to(given.dtype) * 0.5
        turned = weights.transpose(1, 2).contiguous()
        found = given.new_empty((*given.shape[:-1], width))
        gates, cells, bounded = (
            given.new_empty((given.shape[axis], *start.shape[:-1], many * width)) for many in (4, 1, 1)
        )
        state, old = start, cell
        each = given.unbind(axis), gates, found.unbind(axis), cells, bounded
        for added, gate, out, new, tame in zip(*each, strict=True):
            torch.baddbmm(added, state, turned, out=gate).tanh_()
            torch.addcmul(shift, gate, scale, out=gate)
            enters, stays, candidate, shown = gate.chunk(4, -1)
            torch.mul(stays, old, out=new).addcmul_(enters, candidate)
            torch.mul(shown, torch.tanh(new, out=tame), out=out)
            state, old = out, new
        ctx.save_for_backward(start, cell, weights, gates, found, cells, bounded)
        ctx.axis = axis
        return found, old.clone()

    @staticmethod
    def backward(ctx: Any, slopes: Tensor, of_last: Tensor) -> tuple[Any, ...]:
        (start, cell, weights, gates, found, cells, bounded), axis = ctx.saved_tensors, ctx.axis
        gates, cells, bounded = (one.movedim(0, axis) for one in (gates, cells, bounded))
        enters, stays, candidate, shown = gates.chunk(4, -1)
        flow = found.new_empty((*found.shape[:-1], 4, start.shape[-1]))
        # The slope of s(x) by x / 2, which is what gates were given, is twice that by x.
        torch.mul(enters - enters * enters, candidate, out=flow[..., 0, :]).mul_(2)
        torch.mul(stays - stays * stays, earlier(cell, cells, axis), out=flow[..., 1, :]).mul_(2)
        torch.mul(enters, 1 - candidate * candidate, out=flow[..., 2, :])
        torch.mul(shown - shown * shown, bounded, out=flow[..., 3, :]).mul_(2)
        through = (1 - bounded * bounded).mul_(shown)
        slopes = slopes.movedim(axis, 0).clone(memory_format=torch.contiguous_format)
        of_cell, first = of_last.clone(), torch.zeros_like(start)
        flows = flow.flatten(-2)
        each = (one.unbind(axis) for one in (through, stays, flow, flows))
        every = zip((first, *slopes[:-1]), slopes, *each, strict=True)
        for back, here, passed, stay, factors, rows in reversed([*every]):
            of_cell.addcmul_(here, passed)
            factors[..., :3, :].mul_(of_cell.unsqueeze(-2))
            factors[..., 3, :].mul_(here)
            of_cell.mul_(stay)
            back.baddbmm_(rows, weights)
        before = earlier(start, found, axis).flatten(1, 2)
        of_weights = torch.bmm(flows.flatten(1, 2).transpose(1, 2), before)
        return flows, first, of_cell, of_weights, None


def halved(like: Tensor, width: int) -> Tensor:
    """Factors of the gates [4 width]: 1/2 but for g."""
    scale = like.new_full((4, width), 0.5)
    scale[2] = 1
    return scale.flatten()
