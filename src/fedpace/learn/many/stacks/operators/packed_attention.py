"""Attention over packed parts in a stack: by a kernel of our own where sequences are short.

torch's kernels read sequences in blocks of 64 places, and leave three gradients to be put together.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import scaled_dot_product_attention

from fedpace.learn.many.stacks.function import by_kernels, in_stack
from fedpace.learn.many.stacks.operators.attention import attend
from fedpace.learn.model.attention import joined

_MOST = 64
"""Places of a sequence, and numbers of a head, that a program has room for."""


def attend_to_parts(parts: Tensor, causal: bool = False) -> Tensor | None:
    """Compute attend_packed within vmap; None where it is not one of numbers."""
    if parts.ndim != 5 or not parts.is_floating_point():
        return None
    samples, length, _, _, width = parts.shape
    found: Tensor
    short = 0 < length <= _MOST and width <= _MOST and samples > 0
    if short and parts.dtype == torch.float32 and by_kernels(parts):
        exact = torch.get_float32_matmul_precision() == "highest"
        found = _of_one(parts, causal, exact)
        return found
    query, key, value = parts.permute(2, 0, 3, 1, 4)
    seen = attend(query, key, value, is_causal=causal)
    if seen is None:
        seen = scaled_dot_product_attention(query, key, value, is_causal=causal)
    return joined(seen)


class StackedAttention(Function):
    """The attention of all sequences: [sequences, length, 3, heads, width]."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, causal: bool, exact: bool) -> Tensor:
        from fedpace.learn.many.kernels import attention

        parts = parts.contiguous()
        ctx.save_for_backward(parts)
        ctx.how = causal, exact
        return attention.attend(parts, causal, exact)

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        from fedpace.learn.many.kernels import attention

        (parts,) = ctx.saved_tensors
        return attention.parts_of(parts, slopes.contiguous(), *ctx.how), None, None


def _together(parts: Tensor, causal: bool, exact: bool) -> Tensor:
    clients, samples, length, *_ = parts.shape
    found: Tensor = StackedAttention.apply(parts.flatten(0, 1), causal, exact)  # type: ignore[no-untyped-call]
    return found.view(clients, samples, length, -1)


_of_one = in_stack(_together, 1)
