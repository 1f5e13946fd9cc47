"""Convolutions over time of a stack: a product of all rows for each tap, without copies of patches.

Samples lie behind each other as rows [steps, channels] with their padding between them. What a tap sees
are the same rows, further on; outputs that reach from one sample into the next are left out.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedpace.learn.many.stacks.function import cast, in_stack, shared

_MOST_STRIDE = 2
"""Outputs between strides are computed, too."""


def convolve_over_time(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor | None:
    """Compute torch.conv1d within vmap; None for groups, long strides and uneven padding."""
    apart, far = _one(dilation), _one(stride)
    if padding == "same":
        around = apart * (weight.shape[-1] - 1)
        padding = around // 2 if around % 2 == 0 else -1
    side = 0 if padding == "valid" else _one(padding)
    if groups != 1 or x.ndim != 3 or far > _MOST_STRIDE or side < 0 or not x.is_floating_point():
        return None
    if x.shape[-1] + 2 * side <= apart * (weight.shape[-1] - 1):
        return None
    found: Tensor = _of_one(*cast(x, weight, bias), side, apart)
    return found[..., ::far] if far > 1 else found


class StackedConvolutionOverTime(Function):
    """The convolutions of all clients: [clients, samples, channels, steps]."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weights: Tensor, bias: Tensor | None, side: int, apart: int
    ) -> Tensor:
        clients, samples, channels, steps = x.shape
        taps = weights.permute(3, 0, 1, 2).contiguous()
        room, reach = steps + 2 * side, apart * (len(taps) - 1)
        rows = x.new_zeros((clients, samples * room + reach, channels))
        inside = rows[:, : samples * room].view(clients, samples, room, channels)
        inside[:, :, side : side + steps] = x.transpose(2, 3)
        out = x.new_empty((clients, samples * room, weights.shape[1]))
        if bias is None:
            torch.bmm(rows[:, : samples * room], taps[0].transpose(1, 2), out=out)
        else:
            first = rows[:, : samples * room], taps[0].transpose(1, 2)
            torch.baddbmm(bias.unsqueeze(1), *first, out=out)
        for tap in range(1, len(taps)):
            seen = rows[:, tap * apart : tap * apart + samples * room]
            out.baddbmm_(seen, taps[tap].transpose(1, 2))
        ctx.save_for_backward(rows, taps)
        ctx.how = samples, steps, side, apart, bias is not None
        found = out.view(clients, samples, room, -1)[:, :, : room - reach]
        return found.transpose(2, 3)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        (rows, taps), (samples, steps, side, apart, biased) = ctx.saved_tensors, ctx.how
        clients, channels, room = len(rows), rows.shape[2], steps + 2 * side
        reach = apart * (len(taps) - 1)
        # In front of the rows there is room for what taps reach back to.
        behind = slopes.new_zeros((clients, reach + samples * room, slopes.shape[2]))
        whole = behind[:, reach:].view(clients, samples, room, -1)
        whole[:, :, : slopes.shape[3]] = slopes.transpose(2, 3)
        found: list[Tensor | None] = [None, None, None]
        if ctx.needs_input_grad[0]:
            back = torch.bmm(behind[:, reach:], taps[0])
            for tap in range(1, len(taps)):
                start = reach - tap * apart
                back.baddbmm_(behind[:, start : start + samples * room], taps[tap])
            inside = back.view(clients, samples, room, channels)[:, :, side : side + steps]
            found[0] = inside.transpose(2, 3)
        if ctx.needs_input_grad[1]:
            turned = behind[:, reach:].transpose(1, 2)
            starts = [tap * apart for tap in range(len(taps))]
            each = [torch.bmm(turned, rows[:, at : at + samples * room]) for at in starts]
            found[1] = torch.stack(each, -1)
        if biased and ctx.needs_input_grad[2]:
            found[2] = slopes.sum((1, 3))
        return *found, None, None


def _together(x: Tensor, weights: Tensor, bias: Tensor | None, side: int, apart: int) -> Tensor:
    if shared(weights) and (bias is None or shared(bias)):
        one = None if bias is None else bias[0]
        found = torch.conv1d(x.flatten(0, 1), weights[0], one, padding=side, dilation=apart)
        return found.view(*x.shape[:2], *found.shape[1:])
    made: Tensor = StackedConvolutionOverTime.apply(x, weights, bias, side, apart)  # type: ignore[no-untyped-call]
    return made


_of_one = in_stack(_together, 3)


def _one(value: Any) -> int:
    return value if isinstance(value, int) else int(value[0])
