"""Samples from what users give as training or test set, or one line that says what is wrong with it."""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import TensorDataset

from fedpace.core.errors import ConfigError
from fedpace.learn.samples.convert import check_type, to_inputs, to_targets
from fedpace.learn.samples.samples import ArraySamples, Samples
from fedpace.learn.tree import Tree, describe, leaf_names, leaves, like, map_tree

Scale = float | Mapping[Any, Any] | tuple[Any, ...] | list[Any] | None
"""A factor of inputs, or a tree of factors for a tree of inputs, None where one stays as it is."""


def read_samples(
    part: str,
    given: Any,
    scale: Scale = None,
    collate: Callable[[list[Any]], Any] | None = None,
    target: str | tuple[str, ...] | None = None,
) -> Samples:
    """Samples of `given`, see Task. part: train or test, for errors."""
    if isinstance(given, Samples):
        return given
    if isinstance(given, TensorDataset) and len(given.tensors) == 2 and collate is None:
        given = given.tensors
    if isinstance(given, Mapping) and target is not None:
        given = split_columns(part, given, target)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise _wrong_form(part, given)
    inputs, targets = (_as_tree(part, what, one) for what, one in zip(_WHATS, given, strict=True))
    inputs = _stacked_rows(inputs, targets)
    _check_lengths(part, inputs, targets)
    factors = scales_for(part, inputs, scale)
    return ArraySamples(
        map_tree(lambda one, factor: to_inputs(one, factor).contiguous(), inputs, factors),
        map_tree(lambda one: to_targets(one).contiguous(), targets),
    )


_WHATS = ("inputs", "targets")


def split_columns(
    part: str, columns: Mapping[str, Any], target: str | tuple[str, ...]
) -> tuple[dict[str, Any], Any]:
    """Inputs and targets of columns by name; several targets are a dict."""
    names = (target,) if isinstance(target, str) else tuple(target)
    for name in names:
        if name not in columns:
            raise ConfigError(
                f"{part} has no column {name!r} for targets; target must be one of "
                f"{', '.join(map(str, columns))}"
            )
    inputs = {name: values for name, values in columns.items() if name not in names}
    if not inputs:
        raise ConfigError(
            f"{part} has no column but its targets ({', '.join(names)}); give inputs, too"
        )
    return inputs, columns[target] if isinstance(target, str) else {n: columns[n] for n in names}


def scales_for(part: str, inputs: Tree, scale: Scale, name: str = "inputs") -> Tree:
    """Factors in the form of `inputs`, None for none; ConfigError where `scale` does not fit."""
    if scale is None:
        return map_tree(lambda one: None, inputs)
    branches = isinstance(inputs, Mapping | tuple | list)
    if isinstance(scale, Mapping) and isinstance(inputs, Mapping):
        if not scale.keys() <= inputs.keys():
            odd = next(key for key in scale if key not in inputs)
            raise ConfigError(
                f"scale has the key {odd!r}, but {part} {name} has {', '.join(map(str, inputs))}"
            )
        return {
            key: scales_for(part, one, scale.get(key), f"{name}[{key!r}]")
            for key, one in inputs.items()
        }
    if isinstance(scale, tuple | list) and branches and len(scale) == len(inputs):
        pairs = zip(inputs, scale, strict=True)
        each = [scales_for(part, one, own, f"{name}[{at}]") for at, (one, own) in enumerate(pairs)]
        return like(inputs, each)
    if branches or isinstance(scale, bool) or not isinstance(scale, int | float | np.number):
        kind = describe(inputs) if branches else "one array"
        raise ConfigError(
            f"scale is {scale!r}, but {part} {name} is {kind}; give one number an array, in the form "
            "of the inputs, as in scale={'pixels': 1 / 255}, and None for what stays as it is"
        )
    if not math.isfinite(scale) or scale == 0:
        raise ConfigError(f"scale is {scale!r}; give a finite number other than 0, such as 1 / 255")
    return float(scale)


def _wrong_form(part: str, given: Any) -> ConfigError:
    expected = "give (inputs, targets) with one row a sample, or a map-style Dataset"
    if isinstance(given, Mapping):
        keys = ", ".join(map(repr, list(given)[:6]))
        return ConfigError(
            f"{part} is a dict with the keys {keys}; give (inputs, targets), of which inputs may be a "
            "dict, or name the column of targets, as in target='label'"
        )
    if isinstance(given, tuple | list):
        return ConfigError(f"{part} is a {type(given).__name__} of {len(given)}; {expected}")
    if isinstance(given, np.ndarray | Tensor):
        return ConfigError(f"{part} is one array of shape {tuple(given.shape)}; {expected}")
    if isinstance(given, Iterable):
        return ConfigError(
            f"{part} is a {type(given).__name__}, whose samples have no numbers; batches are drawn by "
            f"number: {expected}, or read streams with Task.from_streams"
        )
    return ConfigError(f"{part} is a {type(given).__name__}; {expected}")


def _as_tree(part: str, what: str, given: Any) -> Tree:
    """Arrays and tensors in plain tuples, lists and dicts."""
    name = f"{part} {what}"
    if isinstance(given, Mapping):
        if not given:
            raise ConfigError(f"{name} is an empty dict; give at least one array")
        return {key: _as_tree(part, f"{what}[{key!r}]", one) for key, one in given.items()}
    if isinstance(given, tuple | list):
        if not given:
            raise ConfigError(f"{part} holds no samples; give (inputs, targets) with one row a sample")
        if only_numbers(given):
            return _of_numbers(name, given)
        return like(given, [_as_tree(part, f"{what}[{at}]", one) for at, one in enumerate(given)])
    if isinstance(given, Tensor):
        return given
    if not hasattr(given, "__array__"):
        raise ConfigError(
            f"{name} is a {type(given).__name__}; give an array or a tensor, or a tuple or dict of them"
        )
    array = given if isinstance(given, np.ndarray) else np.asarray(given)
    check_type(name, array)
    return array


def only_numbers(given: Any) -> bool:
    """Say whether a list holds values instead of arrays, at whatever depth; its first entries tell."""
    while isinstance(given, tuple | list) and given:
        given = given[0]
    return isinstance(given, bool | int | float | complex | str | bytes | np.generic)


def _of_numbers(name: str, given: Any) -> np.ndarray:
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise ConfigError(
            f"{name} have rows of unequal length; pad them, or give a Dataset with a collate function"
        ) from error
    check_type(name, array)
    # As torch reads Python's numbers.
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _stacked_rows(inputs: Tree, targets: Tree) -> Tree:
    """One array, where inputs are a list of as many arrays as there are targets, one a sample."""
    if not isinstance(inputs, tuple | list) or not all(
        isinstance(one, np.ndarray | Tensor) for one in inputs
    ):
        return inputs
    total, shapes = _rows(next(leaves(targets))), {tuple(one.shape) for one in inputs}
    if len(inputs) != total or len(shapes) != 1 or _rows(inputs[0]) == total:
        return inputs
    return torch.stack([torch.as_tensor(one) for one in inputs])


def _rows(values: Any) -> int:
    return len(values) if values.ndim else -1


def _check_lengths(part: str, inputs: Tree, targets: Tree) -> None:
    counts: dict[str, int] = {}
    for what, tree in zip(_WHATS, (inputs, targets), strict=True):
        counts |= zip(leaves(leaf_names(tree, what)), map(_rows, leaves(tree)), strict=True)
    if min(counts.values()) <= 0:
        raise ConfigError(f"{part} holds no samples; give (inputs, targets) with one row a sample")
    first, total = next(iter(counts.items()))
    for name, count in counts.items():
        if count != total:
            if (first, name) == _WHATS:
                raise ConfigError(
                    f"{part} has {total} inputs but {count} targets; give one target an input"
                )
            raise ConfigError(
                f"{part} {name} has {count} rows, but {first} has {total}; give one row a sample"
            )
