"""Samples of streams, put together to arrays with one row a sample."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fedpace.core.errors import ConfigError
from fedpace.learn.samples.reading import only_numbers
from fedpace.learn.tree import Tree, describe, like


def stack_values(name: str, values: list[Any], cuts: np.ndarray) -> Tree:
    """A tree of tensors, of equal values of all streams; name: inputs or targets.

    cuts: numbers of values by the end of each stream.
    """
    first = values[0]
    if isinstance(first, Mapping):
        _check(name, values, cuts, lambda one: isinstance(one, Mapping) and one.keys() == first.keys())
        return {
            key: stack_values(f"{name}[{key!r}]", [one[key] for one in values], cuts) for key in first
        }
    if isinstance(first, tuple | list) and not only_numbers(first):
        size = len(first)
        _check(name, values, cuts, lambda one: isinstance(one, tuple | list) and len(one) == size)
        each = [stack_values(f"{name}[{at}]", [one[at] for one in values], cuts) for at in range(size)]
        return like(first, each)
    try:
        tensors = [torch.tensor(one) if _frozen(one) else torch.as_tensor(one) for one in values]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{name} of a stream cannot be made a tensor: {error}; give arrays, tensors or numbers"
        ) from error
    shape, dtype = tensors[0].shape, tensors[0].dtype
    _check(name, tensors, cuts, lambda one: one.shape == shape and one.dtype == dtype)
    return torch.stack(tensors)


def _check(name: str, values: list[Any], cuts: np.ndarray, fits: Any) -> None:
    for number, one in enumerate(values):
        if not fits(one):
            client = int(np.searchsorted(cuts, number, side="right"))
            raise ConfigError(
                f"stream {client} has {name} that are {describe(one)}, but the first of all is "
                f"{describe(values[0])}; give all the same"
            )


def _frozen(value: Any) -> bool:
    """Say whether torch would warn about memory that it could not write to."""
    return isinstance(value, np.ndarray) and not value.flags.writeable
