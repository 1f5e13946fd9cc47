"""Values of single samples, put together to arrays with one row a sample."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from fedpace.core.errors import ConfigError
from fedpace.learn.tree import Tree, describe, like


def only_numbers(given: Any) -> bool:
    """Say whether a list holds values instead of arrays, at whatever depth; its first entries tell."""
    while isinstance(given, tuple | list) and given:
        given = given[0]
    return isinstance(given, bool | int | float | complex | str | bytes | np.generic)


def stack_values(name: str, values: list[Any], owner: Callable[[int], str]) -> Tree:
    """A tree of tensors, of equal values. name: inputs or targets; owner: whose the n-th value is."""
    first = values[0]
    if isinstance(first, Mapping):
        _check(name, values, owner, lambda one: isinstance(one, Mapping) and one.keys() == first.keys())
        return {
            key: stack_values(f"{name}[{key!r}]", [one[key] for one in values], owner) for key in first
        }
    if isinstance(first, tuple | list) and not only_numbers(first):
        size = len(first)
        _check(name, values, owner, lambda one: isinstance(one, tuple | list) and len(one) == size)
        each = [stack_values(f"{name}[{at}]", [one[at] for one in values], owner) for at in range(size)]
        return like(first, each)
    try:
        tensors = [torch.tensor(one) if _frozen(one) else torch.as_tensor(one) for one in values]
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{owner(0)} has {name} that are {describe(first)}, and torch makes no tensor of them "
            f"({error}); give arrays, tensors or numbers"
        ) from error
    shape, dtype = tensors[0].shape, tensors[0].dtype
    _check(name, tensors, owner, lambda one: one.shape == shape and one.dtype == dtype)
    return torch.stack(tensors)


def _check(
    name: str, values: list[Any], owner: Callable[[int], str], fits: Callable[[Any], bool]
) -> None:
    for number, one in enumerate(values):
        if not fits(one):
            raise ConfigError(
                f"{owner(number)} has {name} that are {describe(one)}, but the first of all is "
                f"{describe(values[0])}; give all the same"
            )


def _frozen(value: Any) -> bool:
    """Say whether torch would warn about memory that it could not write to."""
    return isinstance(value, np.ndarray) and not value.flags.writeable
