"""Metrics that come with fedpace: each function makes one, all of which can be sent to processes."""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedpace.core.errors import ConfigError, nearest
from fedpace.core.evaluation.metric import ACCURACY_NAME
from fedpace.learn.metrics.loss import PADDING
from fedpace.learn.metrics.metric import Metric
from fedpace.learn.metrics.ranks import area_under_curve
from fedpace.learn.metrics.shapes import binary_scores, class_scores, numbers

Average = Literal["macro", "micro", "weighted", "binary"]


def accuracy(ignore: int = PADDING) -> Metric:
    """Share of targets whose class has the largest score; `ignore` is not counted."""
    return Metric(ACCURACY_NAME, argmax_hits, over="tokens", ignore=ignore, share=True)


def token_accuracy(ignore: int = PADDING) -> Metric:
    """Share of tokens that are right, padding left out: `accuracy` under a name of its own."""
    return Metric("token_accuracy", argmax_hits, over="tokens", ignore=ignore, share=True)


def binary_accuracy(threshold: float = 0.0) -> Metric:
    """Share of 0/1 targets on whose side of the threshold the model's one logit is."""
    score = partial(_binary_hits, threshold=threshold)
    return Metric("binary_accuracy", score, share=True)


def perplexity(ignore: int = PADDING) -> Metric:
    """exp of the mean cross-entropy a token, padding left out."""
    score = partial(_token_losses, ignore=ignore)
    return Metric("perplexity", score, False, "tokens", ignore, transform=_exp)


def mse() -> Metric:
    """Mean squared error."""
    return Metric("mse", _squares, higher_is_better=False)


def rmse() -> Metric:
    """Root of the mean squared error."""
    return Metric("rmse", _squares, higher_is_better=False, transform=math.sqrt)


def mae() -> Metric:
    """Mean absolute error."""
    return Metric("mae", _distances, higher_is_better=False)


def r2() -> Metric:
    """Coefficient of determination; the mean over columns where targets have several.

    A column of equal targets gives 1 where it is met exactly, else 0.
    """
    return Metric("r2", _determination, over="all")


def f1(average: Average = "macro", ignore: int = PADDING) -> Metric:
    """F1 of classes.

    average: "macro": mean over the classes among targets or answers; "weighted": by their targets;
    "micro": of all counts together; "binary": of class 1, also from one logit a target.
    """
    kinds = ("macro", "micro", "weighted", "binary")
    if average not in kinds:
        hint = nearest(str(average), kinds)
        raise ConfigError(f"average of f1 is {average!r}{hint}; set it to {', '.join(kinds)}")
    return Metric("f1", F1Counts(average, ignore), share=True)


def auc() -> Metric:
    """Area under the ROC curve: of one logit or two for 0/1 targets, else the mean of each class
    against the rest."""
    return Metric("auc", area_under_curve, over="all", share=True)


def argmax_hits(outputs: Any, targets: Tensor) -> Tensor:
    """True where the class with the largest score is the target."""
    return class_scores(outputs, targets).argmax(-1) == targets


def _binary_hits(outputs: Any, targets: Tensor, threshold: float) -> Tensor:
    return (binary_scores(outputs, targets) > threshold) == (targets > 0.5)


def _token_losses(outputs: Any, targets: Tensor, ignore: int) -> Tensor:
    scores = class_scores(outputs, targets).flatten(0, -2)
    losses = cross_entropy(scores, targets.flatten(), ignore_index=ignore, reduction="none")
    return losses.view(targets.shape)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _squares(outputs: Any, targets: Tensor) -> Tensor:
    found, wanted = numbers(outputs, targets)
    return (found - wanted).square()


def _distances(outputs: Any, targets: Tensor) -> Tensor:
    found, wanted = numbers(outputs, targets)
    return (found - wanted).abs()


def _determination(outputs: Any, targets: Tensor) -> Tensor:
    found, wanted = (one.reshape(len(one), -1) for one in numbers(outputs, targets))
    missed = (found - wanted).square().sum(0)
    spread = (wanted - wanted.mean(0)).square().sum(0)
    flat = (missed == 0).double()
    return torch.where(spread > 0, 1 - missed / spread.where(spread > 0, 1.0), flat).mean()


@dataclass
class F1Counts:
    """Right, given and true answers of each class, which is all that F1 needs."""

    average: Average
    ignore: int
    higher_is_better: bool = True
    _counts: Tensor | None = field(default=None, repr=False)
    """Rows: right, given and true answers; columns: classes."""

    def reset(self) -> None:
        self._counts = None

    def update(self, preds: Any, target: Tensor) -> None:
        if self.average == "binary":
            given, classes = (binary_scores(preds, target) > 0).long(), 2
        else:
            scores = class_scores(preds, target)
            given, classes = scores.argmax(-1), scores.shape[-1]
        counted = target != self.ignore
        given, true = given[counted], target[counted].long()
        right = true[given == true]
        rows = [torch.bincount(one, minlength=classes) for one in (right, given, true)]
        if max(map(len, rows)) > classes:
            raise ConfigError(f"f1 has scores of {classes} classes, but a target is {int(true.max())}")
        counts = torch.stack(rows)
        self._counts = counts if self._counts is None else self._counts + counts

    def compute(self) -> float:
        if self._counts is None or not int(self._counts[2].sum()):
            raise ConfigError(f"f1 counts nothing: it ignores {self.ignore}, as every test target is")
        right, given, true = self._counts.double()
        if self.average == "micro":
            right, given, true = (one.sum(0, keepdim=True) for one in (right, given, true))
        elif self.average == "binary":
            right, given, true = right[1:], given[1:], true[1:]
        each = 2 * right / (given + true).clamp(min=1)
        weights = true if self.average == "weighted" else (given + true > 0).double()
        return float((each * weights).sum() / weights.sum().clamp(min=1))
