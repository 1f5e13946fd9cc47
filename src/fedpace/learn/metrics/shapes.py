"""Outputs of models and their targets, brought together by shape."""

from typing import Any

import torch
from torch import Tensor

from fedpace.core.errors import ConfigError
from fedpace.learn.tree import Tree, describe, map_tree


def shape_of(value: Any) -> str:
    """The shape of a tensor, or what else it is, for errors."""
    return str(tuple(value.shape)) if isinstance(value, Tensor) else describe(value)


def logits_of(outputs: Any) -> Tensor:
    """The tensor of a model's outputs: they are one, or have one named `logits`."""
    found = outputs if isinstance(outputs, Tensor) else getattr(outputs, "logits", None)
    if found is None and isinstance(outputs, dict):
        found = outputs.get("logits")
    if not isinstance(found, Tensor):
        raise ConfigError(
            f"outputs are a {type(outputs).__name__} without a tensor `logits`; let the model return a "
            "tensor, or give a Metric with a score of your own"
        )
    return found


def class_scores(outputs: Any, targets: Tensor) -> Tensor:
    """Outputs with their classes on the last axis: there, or on the second one as in cross_entropy."""
    logits = logits_of(outputs)
    shape = tuple(logits.shape)
    if logits.ndim == targets.ndim + 1:
        if shape[:-1] == targets.shape:
            found = logits
        elif shape[:1] + shape[2:] == targets.shape:
            found = logits.movedim(1, -1)
        else:
            found = None
        if found is not None and found.shape[-1] > 1:
            return found
    raise ConfigError(
        f"outputs of shape {shape} are no scores of classes for targets of shape "
        f"{tuple(targets.shape)}; expected one number a class on the last axis or the second, or give "
        "the task its own accuracy or metrics, as in metrics='binary_accuracy', metrics.f1('binary') "
        "or metrics='mae'"
    )


def numbers(outputs: Any, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs and targets of regression, of one shape, as float64."""
    found = logits_of(outputs)
    if found.shape != targets.shape:
        raise ConfigError(
            f"outputs have shape {tuple(found.shape)}, but targets {tuple(targets.shape)}; let the "
            "model give outputs of the targets' shape"
        )
    return found.double(), targets.double()


def binary_scores(outputs: Any, targets: Tensor) -> Tensor:
    """One number a sample, above 0 for class 1: a logit, or the difference of two."""
    logits = logits_of(outputs)
    if logits.shape == targets.shape:
        return logits
    if logits.shape[:-1] == targets.shape and logits.shape[-1] <= 2:
        return logits[..., 0] if logits.shape[-1] == 1 else logits[..., 1] - logits[..., 0]
    raise ConfigError(
        f"outputs of shape {tuple(logits.shape)} are no scores of two classes for targets of shape "
        f"{tuple(targets.shape)}; expected one logit a target, or two"
    )


def joined(parts: list[Tree]) -> Tree:
    """Batches of one structure (tensors, tuples, lists, dicts) put together along their first axis."""
    return map_tree(_joined, *parts)


def _joined(*parts: Any) -> Tensor:
    for part in parts:
        if not isinstance(part, Tensor):
            raise ConfigError(
                f"a model's outputs hold a {type(part).__name__}; a metric over all needs tensors, "
                "or tuples, lists and dicts of them; or give an object with update, compute and reset"
            )
    return torch.cat([part if part.ndim else part[None] for part in parts])
