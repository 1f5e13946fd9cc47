"""Group normalisation in a stack, where every client has factors and shifts of its own.

torch normalises, multiplies and adds one after the other, and reads and writes all images each time.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedpace.learn.many.stacks.function import in_stack

_MOST = 16_384
"""Numbers of a group that a kernel can hold."""


def normalise(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | None:
    """Compute torch's group_norm by our kernels, within vmap; None where they cannot do it."""
    if weight is None or bias is None or x.ndim < 3 or x.shape[1] % num_groups:
        return None
    room = _power_of_2(x.shape[1] // num_groups) * _power_of_2(math.prod(x.shape[2:]))
    kinds = x.dtype in (torch.float32, torch.bfloat16) and weight.dtype == torch.float32
    if not (kinds and 0 < room <= _MOST):
        return None
    return _of_one(x.flatten(2), weight, bias, num_groups, eps).view(x.shape)


def _power_of_2(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()


class StackedNormalisation(Function):
    """The normalisations of all clients: [clients, samples, channels, places]."""

    @staticmethod
    def forward(
        x: Tensor, factors: Tensor, shifts: Tensor, groups: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        from fedpace.learn.many.kernels import normalisation

        whole = x.contiguous(), factors.contiguous(), shifts.contiguous()
        return normalisation.normalise(*whole, groups, eps)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        x, factors, *_ = inputs
        _, means, scales = output
        ctx.mark_non_differentiable(means, scales)
        ctx.save_for_backward(x, factors, means, scales)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor, *_: Any) -> tuple[Any, ...]:
        from fedpace.learn.many.kernels import normalisation

        whole = [one.contiguous() for one in (*ctx.saved_tensors, slopes)]
        return *normalisation.slopes_of(*whole), None, None


def _together(*given: Any) -> Tensor:
    found: Tensor = StackedNormalisation.apply(*given)[0]  # type: ignore[no-untyped-call]
    return found


_of_one = in_stack(_together, 3)
