"""Group and layer normalisation in a stack, where every client has factors and shifts of its own.

torch normalises, multiplies and adds one after the other, and reads and writes all images each time.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedpace.learn.many.stacks.function import SampleCounts, in_stack

_MOST = 16_384
"""Numbers of a group that a kernel can hold."""


def normalise(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    counts: SampleCounts | None = None,
) -> Tensor | None:
    """Compute torch's group_norm by our kernels, within vmap; None where they cannot do it."""
    return _computed(x, num_groups, weight, bias, eps, False, None, counts)


def normalise_for_relu(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    more: Tensor | None = None,
    counts: SampleCounts | None = None,
) -> Tensor | None:
    """Compute group_norm_relu likewise."""
    if more is not None and (more.dtype != torch.float32 or more.shape != x.shape):
        return None
    return _computed(x, num_groups, weight, bias, eps, True, more, counts)


def normalise_rows(
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """Compute torch's layer_norm likewise: a row is a sample with one group of channels."""
    shape = tuple(normalized_shape)
    if weight is None or bias is None or not shape or tuple(x.shape[-len(shape) :]) != shape:
        return None
    rows = x.reshape(-1, math.prod(shape), 1)
    found = _computed(rows, 1, weight.flatten(), bias.flatten(), eps, False, None)
    return None if found is None else found.view(x.shape)


def _computed(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    relu: bool,
    more: Tensor | None,
    counts: SampleCounts | None = None,
) -> Tensor | None:
    if weight is None or bias is None or x.ndim < 3 or x.shape[1] % num_groups:
        return None
    room = _power_of_2(x.shape[1] // num_groups) * _power_of_2(math.prod(x.shape[2:]))
    kinds = x.dtype in (torch.float32, torch.bfloat16) and weight.dtype == torch.float32
    if not (kinds and 0 < room <= _MOST):
        return None
    more = None if more is None else more.flatten(2)
    own = None if counts is None else counts.of(x)
    found: Tensor = _of_one(x.flatten(2), weight, bias, more, num_groups, eps, relu, own)
    return found.view(x.shape)


def _power_of_2(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


class StackedNormalisation(Function):
    """The normalisations of all clients: [clients, samples, channels, places]."""

    @staticmethod
    def forward(
        x: Tensor,
        factors: Tensor,
        shifts: Tensor,
        more: Tensor | None,
        groups: int,
        eps: float,
        relu: bool,
        counts: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        from fedpace.learn.many.kernels import normalisation

        whole = x.contiguous(), factors.contiguous(), shifts.contiguous()
        more = None if more is None else more.contiguous()
        return normalisation.normalise(*whole, groups, eps, relu, more, counts)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, factors, shifts, more, _, _, ctx.relu, *rest = inputs
        ctx.counts = rest[0] if rest else None
        found, means, scales = output
        ctx.mark_non_differentiable(means, scales)
        ctx.more, ctx.left = more is not None, None
        known = [found] if ctx.relu and ctx.more else []
        ctx.save_for_backward(x, factors, shifts, means, scales, *known)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor, *_: Any) -> tuple[Any, ...]:
        from fedpace.learn.many.kernels import normalisation

        *kept, slopes = (one.contiguous() for one in (*ctx.saved_tensors, slopes))
        y = kept.pop() if ctx.relu and ctx.more else None
        x, factors, shifts, means, scales = kept
        given = slopes, ctx.relu, y, ctx.more, ctx.counts
        *others, of_more = normalisation.slopes_of(x, factors, shifts, means, scales, *given)
        if ctx.left is not None:
            of_more = ctx.left.leave(of_more)
        return *others, of_more, None, None, None, None


def _together(*given: Any) -> Tensor:
    found: Tensor = StackedNormalisation.apply(*given)[0]  # type: ignore[no-untyped-call]
    return found


_of_one = in_stack(_together, 4)
