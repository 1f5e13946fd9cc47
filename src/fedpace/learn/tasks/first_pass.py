"""Tries a task's model on two samples of each set: what does not fit is one line, before training."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.learn.model.calls import left_unchanged
from fedpace.learn.model.layers import Layout
from fedpace.learn.tasks.task import Task
from fedpace.learn.tree import Tree, call, describe, leaves

_IGNORED = -100
"""A target that torch's cross entropy leaves out."""


def make_model(task: Task) -> nn.Module:
    """A new model of the task."""
    try:
        model = task.model()
    except FedpaceError:
        raise
    except Exception as error:  # whatever a user's function may raise
        raise ConfigError(
            f"the task's model cannot be built: {_line(error)}; give a function or class that makes a "
            "new nn.Module and takes no arguments, or an nn.Module"
        ) from error
    if not isinstance(model, nn.Module):
        raise ConfigError(
            f"the task's model() gives a {type(model).__name__}; it must make a new nn.Module"
        )
    return model


def trace(task: Task, model: nn.Module) -> Layout:
    """The layout of a task's model, once a pass and its loss have worked; the model stays as it is."""
    inputs, targets = task.train.first(2)
    with left_unchanged(model):
        model.eval()
        outputs = _outputs(model, inputs)
        _check_classes(task, outputs, targets)
        _check_loss(task, outputs, targets)
        inputs_of_test, targets_of_test = task.test.first(2)
        outputs = _outputs(model, inputs_of_test, "test inputs")
        _check_loss(task, outputs, targets_of_test, "test targets")
    try:
        return Layout.trace(model, inputs)
    except FedpaceError:
        raise
    except Exception as error:
        raise _cannot_take(model, inputs, error) from error


def _outputs(model: nn.Module, inputs: Tree, which: str = "inputs") -> Any:
    try:
        return call(model, inputs)
    except FedpaceError:
        raise
    except Exception as error:  # whatever a model may raise
        raise _cannot_take(model, inputs, error, which) from error


def _cannot_take(
    model: nn.Module, inputs: Tree, error: Exception, which: str = "inputs"
) -> ConfigError:
    whole = [one for one in leaves(inputs) if not one.is_floating_point()]
    types = ("dtype", "scalar type", "Long", "Float", "not implemented for", "indices")
    hint = "an array is given as model(x), a tuple as model(*x), a dict as model(**x)"
    if whole and any(word in str(error) for word in types):
        hint = "integers stay integers, as tokens must; pixels need a scale: Task(..., scale=1 / 255)"
    return ConfigError(
        f"model {type(model).__name__} cannot take {which} {describe(inputs)}: {_line(error)}; {hint}"
    )


def _check_classes(task: Task, outputs: Any, targets: Tree) -> None:
    """ConfigError for classes that a model has no output for, where the loss is cross entropy."""
    if task.loss is not cross_entropy or not isinstance(outputs, Tensor) or outputs.ndim < 2:
        return
    if not isinstance(targets, Tensor) or targets.dtype != torch.int64:
        return
    outside = outputs.shape[1]
    for part, samples in (("train", task.train), ("test", task.test)):
        values = samples.some_targets()
        values = values[values != _IGNORED] if isinstance(values, Tensor) else torch.empty(0)
        if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < outside:
            least, most = int(values.min()), int(values.max())
            raise ConfigError(
                f"{part} targets run from {least} to {most}, but the model has {outside} outputs; "
                f"classes must lie between 0 and {outside - 1}"
            )


def _check_loss(task: Task, outputs: Any, targets: Tree, which: str = "targets") -> None:
    try:
        value = task.loss(outputs, targets)
    except FedpaceError:
        raise
    except Exception as error:  # whatever a user's function may raise
        raise ConfigError(
            f"loss fails on outputs {describe(outputs)} and {which} {describe(targets)}: "
            f"{_line(error)}; give a loss(outputs, targets) that takes what the model gives"
        ) from error
    if not isinstance(value, Tensor) or value.numel() != 1:
        found = describe(value) if isinstance(value, Tensor) else f"a {type(value).__name__}"
        raise ConfigError(f"loss gives {found}; it must give a tensor of one number, as by .mean()")
    if not value.requires_grad:
        raise ConfigError(
            "loss has no gradient for the model's parameters; compute it from the model's outputs with "
            "torch, without .detach(), .item() or argmax"
        )


def _line(error: Exception) -> str:
    return (str(error).strip() or repr(error)).partition("\n")[0]
