"""Factors of inputs: what is to be scaled is said by a task, never guessed from a type."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.learn.tree import Tree, describe, like, map_tree

Scale = float | Mapping[Any, Any] | tuple[Any, ...] | list[Any] | None
"""A factor of inputs, or a tree of factors for a tree of inputs, None where one stays as it is."""


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
