"""Tries a task's model on two samples of each set: what does not fit is one line, before training."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, nll_loss

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
    _check_trainable(model)
    with left_unchanged(model):
        model.eval()
        outputs = _outputs(model, inputs)
        _check_classes(task, outputs, targets)
        _check_loss(task, outputs, targets)
        inputs_of_test, targets_of_test = task.test.first(2)
        outputs = _outputs(model, inputs_of_test, "test inputs")
        _check_loss(task, outputs, targets_of_test, "test targets")
        _check_extremes(task, model)
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
    """ConfigError for classes that a model has no output for, where the loss is one of torch's."""
    ignored = _ignored_class(task.loss)
    if ignored is None or not isinstance(outputs, Tensor) or outputs.ndim < 2:
        return
    if not isinstance(targets, Tensor) or targets.dtype != torch.int64:
        return
    outside = outputs.shape[1]
    for part, samples in (("train", task.train), ("test", task.test)):
        samples.expect_classes(outside, ignored)
        values = samples.some_targets()
        values = values[values != ignored] if isinstance(values, Tensor) else torch.empty(0)
        if values.numel() and not 0 <= int(values.min()) <= int(values.max()) < outside:
            least, most = int(values.min()), int(values.max())
            raise ConfigError(
                f"{part} targets run from {least} to {most}, but the model has {outside} outputs; "
                f"classes must lie between 0 and {outside - 1}"
            )


def _ignored_class(loss: Any) -> int | None:
    """The class that a loss of torch's leaves out; None for a loss of another kind."""
    if loss is cross_entropy or loss is nll_loss:
        return _IGNORED
    return loss.ignore_index if isinstance(loss, nn.CrossEntropyLoss | nn.NLLLoss) else None


def _check_trainable(model: nn.Module) -> None:
    parameters = list(model.parameters())
    if not any(one.requires_grad for one in parameters):
        found = f"all {len(parameters)} parameters of" if parameters else "there are no parameters in"
        frozen = " are frozen" if parameters else ""
        raise ConfigError(
            f"{found} model {type(model).__name__}{frozen}, so nothing can be trained; let some of "
            "them have requires_grad=True"
        )


def _check_extremes(task: Task, model: nn.Module) -> None:
    """Try a loss of the user's own on the smallest and the largest class, which it may not know."""
    if _ignored_class(task.loss) is not None:
        return
    for part, samples in (("train", task.train), ("test", task.test)):
        values = samples.some_targets()
        known = isinstance(values, Tensor) and values.dtype == torch.int64 and values.ndim > 0
        if not known or len(values) != len(samples):
            continue
        rows = values.reshape(len(values), -1)
        ends = [int(rows.amin(1).argmin()), int(rows.amax(1).argmax())]
        inputs, targets = samples.take(np.array(ends))
        outputs = _outputs(model, inputs, f"{part} inputs")
        which = f"{part} targets {int(rows.min())} and {int(rows.max())},"
        _check_loss(task, outputs, targets, which)


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
