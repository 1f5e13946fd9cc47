"""Area under the ROC curve by ranks: how often a positive sample is scored above a negative one."""

import math
from typing import Any

import torch
from torch import Tensor

from fedpace.core.errors import ConfigError
from fedpace.learn.metrics.shapes import binary_scores, class_scores, logits_of


def area_under_curve(outputs: Any, targets: Tensor) -> float:
    """The area for 0/1 targets; with more classes the mean over those of each against the rest."""
    logits = logits_of(outputs)
    if not bool(logits.isfinite().all()):
        return math.nan
    if targets.is_floating_point() and not bool(((targets == 0) | (targets == 1)).all()):
        raise ConfigError(
            f"auc needs targets that are classes, but some lie between {float(targets.min()):g} and "
            f"{float(targets.max()):g}; give 0 or 1, or another metric, such as r2"
        )
    if logits.ndim <= targets.ndim or logits.shape[-1] <= 2:
        return _area(binary_scores(outputs, targets).flatten(), targets.flatten() > 0.5)
    shares = class_scores(outputs, targets).double().softmax(-1).flatten(0, -2)
    labels = targets.flatten()
    classes = torch.unique(labels).tolist()
    if len(classes) < 2:
        raise _one_class()
    return sum(_area(shares[:, one], labels == one) for one in classes) / len(classes)


def _area(scores: Tensor, positive: Tensor) -> float:
    """Mann and Whitney's statistic; equal scores count half."""
    _, places, counts = torch.unique(scores, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    ranks = (last - (counts.double() - 1) / 2)[places]
    many = int(positive.sum())
    others = len(positive) - many
    if many == 0 or others == 0:
        raise _one_class()
    return float((ranks[positive].sum() - many * (many + 1) / 2) / many / others)


def _one_class() -> ConfigError:
    return ConfigError("auc needs test targets of two classes or more; there is one")
