"""Samples from what users give as training or test set, or one line that says what is wrong with it."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, TensorDataset

from fedpace.core.errors import ConfigError
from fedpace.learn.samples.convert import check_numbers, check_tensor, check_type, to_inputs, to_targets
from fedpace.learn.samples.lazy import Collate, DatasetSamples, Target, split_columns
from fedpace.learn.samples.mapped import MappedRows, MappedSamples, find_mapped
from fedpace.learn.samples.samples import ArraySamples, Samples
from fedpace.learn.samples.scales import Scale, scales_for
from fedpace.learn.samples.stacking import only_numbers
from fedpace.learn.tree import Tree, leaf_names, leaves, like, map_tree


def read_samples(
    part: str, given: Any, scale: Scale = None, collate: Collate | None = None, target: Target = None
) -> Samples:
    """Samples of `given`, see Task. part: train or test, for errors."""
    if isinstance(given, Samples):
        return given
    if isinstance(given, TensorDataset) and len(given.tensors) == 2 and collate is None:
        given = given.tensors
    if isinstance(given, Mapping) and target is not None:
        given = split_columns(part, given, target)
    elif _is_dataset(given):
        return DatasetSamples(part, given, scale, collate, target)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise _wrong_form(part, given)
    if collate is not None:
        raise ConfigError(
            f"collate is for datasets that are read sample by sample, but {part} is given as arrays; "
            "leave it out, or give a Dataset"
        )
    inputs, targets = (_as_tree(part, what, one) for what, one in zip(_WHATS, given, strict=True))
    inputs = _stacked_rows(inputs, targets)
    _check_lengths(part, inputs, targets)
    scales = scales_for(part, inputs, scale)
    inputs, targets = map_tree(_read_inputs, inputs, scales), map_tree(_read_targets, targets)
    if not any(isinstance(one, MappedRows) for one in leaves((inputs, targets))):
        map_tree(check_numbers, inputs, leaf_names(inputs, f"{part} inputs"))
        return ArraySamples(inputs, targets)
    later = map_tree(lambda one, scale: scale if isinstance(one, MappedRows) else None, inputs, scales)
    return MappedSamples(inputs, targets, later)


def _read_inputs(one: Any, scale: float | None) -> Any:
    return one if isinstance(one, MappedRows) else to_inputs(one, scale).contiguous()


def _read_targets(one: Any) -> Any:
    return one if isinstance(one, MappedRows) else to_targets(one).contiguous()


def _is_dataset(given: Any) -> bool:
    """Say whether samples can be read by their numbers; a list of more than two pairs is one."""
    if isinstance(given, Mapping | np.ndarray | Tensor | str | bytes | IterableDataset):
        return False
    if isinstance(given, tuple | list):
        return len(given) > 2 and (_is_pair(given[0]) or isinstance(given[0], Mapping))
    return hasattr(given, "__getitem__") and hasattr(given, "__len__")


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple | list) and len(given) == 2


_WHATS = ("inputs", "targets")


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
        check_tensor(name, given)
        return given
    if not hasattr(given, "__array__"):
        raise ConfigError(
            f"{name} is a {type(given).__name__}; give an array or a tensor, or a tuple or dict of them"
        )
    array = given if isinstance(given, np.ndarray) else np.asarray(given)
    check_type(name, array)
    return find_mapped(array) or array


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
