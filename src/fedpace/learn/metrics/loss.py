"""The loss over a whole test set, of its means over batches; and one for sequences with padding.

A mean over a batch counts as much as what it is the mean of: targets that are not ignored, by the
weights of their classes, for torch's own cross_entropy and nll_loss, `weight(outputs, targets)` for a
loss that has such a method, samples for every other.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, runtime_checkable

from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

from fedpace.core.errors import ConfigError
from fedpace.learn.device import read_numbers
from fedpace.learn.metrics.shapes import class_scores, shape_of

PADDING = -100
"""What torch's losses ignore by default."""


@runtime_checkable
class WeighsItself(Protocol):
    """A loss that says how many terms its mean over a batch is of."""

    def weight(self, outputs: Any, targets: Any) -> Any: ...


@dataclass(frozen=True)
class TokenLoss:
    """Cross-entropy a token of sequences: mean over targets other than `ignore`, also to train by.

    Classes are on the last axis of outputs, or on the second as torch has them.
    """

    ignore: int = PADDING

    def __call__(self, outputs: Any, targets: Tensor) -> Tensor:
        scores = class_scores(outputs, targets).flatten(0, -2)
        total = cross_entropy(scores, targets.flatten(), ignore_index=self.ignore, reduction="sum")
        return total / self.weight(outputs, targets).clamp(min=1)

    def weight(self, outputs: Any, targets: Tensor) -> Tensor:
        """Tokens that count."""
        return (targets.long() != self.ignore).sum()


def loss_weight(loss: Callable[..., Any]) -> Callable[[Any, Any, int], Any]:
    """How much a batch's mean loss counts, by outputs, targets and samples."""
    if isinstance(loss, WeighsItself) and not isinstance(loss, nn.Module):
        own = loss
        return lambda outputs, targets, size: own.weight(outputs, targets)
    known = _torch_mean(loss)
    if known is None:
        return lambda outputs, targets, size: size
    return lambda outputs, targets, size: _weight_of(targets, *known, size)


def ignored_target(loss: Any) -> int | None:
    """The target that a loss is known to leave out of its mean; None for losses that are not known."""
    if type(loss) is TokenLoss:
        return loss.ignore
    known = _torch_mean(loss)
    return known[0] if known is not None and known[1] is None else None


def _torch_mean(loss: Any) -> tuple[int, Tensor | None] | None:
    """The target that a mean of torch's leaves out, and its classes' weights; None for other losses."""
    if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss):
        return (loss.ignore_index, loss.weight) if loss.reduction == "mean" else None
    options: dict[str, Any] = {}
    if isinstance(loss, partial):
        if loss.args:
            return None
        loss, options = loss.func, loss.keywords
    mean = options.get("reduction", "mean") == "mean"
    if not mean or (loss is not cross_entropy and loss is not nll_loss):
        return None
    ignored = options.get("ignore_index", PADDING)
    return (ignored, options.get("weight")) if isinstance(ignored, int) else None


def _weight_of(targets: Any, ignored: int, weights: Tensor | None, size: int) -> Any:
    """What a batch's targets weigh together; its samples where targets are no classes."""
    if not isinstance(targets, Tensor) or targets.is_floating_point():
        return size
    targets = targets.long()  # bytes would be taken for a mask, and 156 for -100
    counted = targets != ignored
    if weights is None:
        return counted.sum()
    # Nothing is picked out by a mask, whose size a GPU would have to be waited for.
    return (weights.to(targets.device)[targets.where(counted, 0)] * counted).sum()


class LossTotal:
    """Mean loss of batch after batch."""

    def __init__(self, loss: Callable[[Any, Any], Any]) -> None:
        self._loss, self._weigh = loss, loss_weight(loss)
        self._means: list[Any] = []
        self._weights: list[Any] = []

    def update(self, outputs: Any, targets: Any, size: int) -> None:
        mean = self._loss(outputs, targets)
        if not isinstance(mean, Tensor) or mean.numel() != 1:
            raise ConfigError(
                f"loss gives {shape_of(mean)} for a batch; give a tensor with one number, its mean"
            )
        self._means.append(mean)
        self._weights.append(self._weigh(outputs, targets, size))

    def value(self) -> float:
        weights, means = read_numbers(self._weights), read_numbers(self._means)
        if not sum(weights) > 0:
            raise ConfigError(
                "the loss counts nothing: it ignores every test target; check the padding"
            )
        loss = 0.0
        for mean, weight in zip(means, weights, strict=True):
            if weight > 0:  # a mean of nothing is no number
                loss += mean * weight
        return loss / sum(weights)
