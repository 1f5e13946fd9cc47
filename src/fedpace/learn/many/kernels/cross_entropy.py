"""Cross entropy of many classes: a program for each row of scores, which holds all of it.

Scores are [rows, classes], targets [rows], all of them contiguous. Probabilities are never written.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit(do_not_specialize=["ignored"])
def _losses(scores, targets, losses, sizes, ignored, CLASSES: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    target = tl.load(targets + row)
    values = tl.load(scores + row * CLASSES + c, mask=c < CLASSES, other=float("-inf")).to(tl.float32)
    largest = tl.max(values)
    size = largest + tl.log(tl.sum(tl.exp(values - largest)))
    right = tl.sum(tl.where(c == target, values, 0.0))
    tl.store(losses + row, tl.where(target == ignored, 0.0, size - right))
    tl.store(sizes + row, size)


@triton.jit(do_not_specialize=["ignored"])
def _slopes_of(
    scores, targets, sizes, slopes, found, ignored, CLASSES: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BLOCK)
    target, size = tl.load(targets + row), tl.load(sizes + row)
    slope = tl.where(target == ignored, 0.0, tl.load(slopes + row))
    values = tl.load(scores + row * CLASSES + c, mask=c < CLASSES, other=float("-inf")).to(tl.float32)
    values = (tl.exp(values - size) - tl.where(c == target, 1.0, 0.0)) * slope
    tl.store(found + row * CLASSES + c, values.to(found.dtype.element_ty), mask=c < CLASSES)


def losses_of(scores: Tensor, targets: Tensor, ignored: int) -> tuple[Tensor, Tensor]:
    """The loss of each row, 0 where its target is `ignored`; and the logarithm of its sum."""
    rows, classes = scores.shape
    losses = torch.empty(rows, dtype=torch.float32, device=scores.device)
    sizes = torch.empty_like(losses)
    block = triton.next_power_of_2(classes)
    how = {"CLASSES": classes, "BLOCK": block, "num_warps": min(max(block // 1024, 1), 16)}
    _losses[(rows,)](scores, targets, losses, sizes, ignored, **how)
    return losses, sizes


def slopes_of(scores: Tensor, targets: Tensor, sizes: Tensor, slopes: Tensor, ignored: int) -> Tensor:
    """Gradients of scores, where `slopes` are those of the losses."""
    rows, classes = scores.shape
    found = torch.empty_like(scores)
    block = triton.next_power_of_2(classes)
    how = {"CLASSES": classes, "BLOCK": block, "num_warps": min(max(block // 1024, 1), 16)}
    _slopes_of[(rows,)](scores, targets, sizes, slopes, found, ignored, **how)
    return found
