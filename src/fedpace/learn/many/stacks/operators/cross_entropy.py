"""Cross entropy of many classes in a stack, by kernels of our own.

torch writes the logarithms of all probabilities, and a gradient of them that is nearly all zeros.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fedpace.learn.many.stacks.function import in_stack

_FEWEST, _MOST = 256, 32_768
"""Classes: fewer cost nothing, more have no room in a program."""


def lose(
    scores: Tensor,
    targets: Tensor,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor | None:
    """Compute torch's cross_entropy within vmap; None for few classes and for what is rare."""
    rare = weight is not None or size_average is not None or reduce is not None or label_smoothing
    if rare or scores.ndim != 2 or targets.ndim != 1 or targets.dtype != torch.int64:
        return None
    kinds = scores.dtype in (torch.float32, torch.bfloat16)
    if not kinds or not _FEWEST <= scores.shape[1] <= _MOST or not targets.numel():
        return None
    losses: Tensor = _of_one(scores, targets, ignore_index)
    if reduction == "none":
        return losses
    if reduction == "sum":
        return losses.sum()
    return losses.sum() / (targets != ignore_index).sum() if reduction == "mean" else None


class StackedCrossEntropy(Function):
    """Losses of rows [rows, classes] by their targets [rows]."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, targets: Tensor, ignored: int) -> Tensor:
        from fedpace.learn.many.kernels import cross_entropy

        scores, targets = scores.contiguous(), targets.contiguous()
        losses, sizes = cross_entropy.losses_of(scores, targets, ignored)
        ctx.save_for_backward(scores, targets, sizes)
        ctx.ignored = ignored
        return losses

    @staticmethod
    def backward(ctx: Any, slopes: Tensor) -> tuple[Any, ...]:
        from fedpace.learn.many.kernels import cross_entropy

        scores, targets, sizes = ctx.saved_tensors
        found = cross_entropy.slopes_of(scores, targets, sizes, slopes.contiguous(), ctx.ignored)
        return found, None, None


def _together(scores: Tensor, targets: Tensor, ignored: int) -> Tensor:
    rows = scores.flatten(0, 1), targets.flatten()
    found: Tensor = StackedCrossEntropy.apply(*rows, ignored)  # type: ignore[no-untyped-call]
    return found.view(targets.shape)


_of_one = in_stack(_together, 2)
