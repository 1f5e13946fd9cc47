"""Trees of tensors, which models take: one tensor, or tuples, lists and dicts of trees.

torch has the like, in a private module that treats every class it was told of as a branch; here only
tuples (named ones too), lists and mappings are.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

Tree = Any
"""A leaf, or a tuple, list or dict of trees."""


def map_tree(change: Callable[..., Any], tree: Tree, *others: Tree) -> Tree:
    """A tree of what `change` makes of each leaf, and of those at the same place of `others`."""
    if isinstance(tree, Mapping):
        return {key: map_tree(change, tree[key], *(one[key] for one in others)) for key in tree}
    if isinstance(tree, tuple | list):
        parts = [map_tree(change, *each) for each in zip(tree, *others, strict=True)]
        return like(tree, parts)
    return change(tree, *others)


def leaf_names(tree: Tree, name: str) -> Tree:
    """A tree of the names of its leaves, such as inputs['ids'] or inputs[0]."""
    if isinstance(tree, Mapping):
        return {key: leaf_names(one, f"{name}[{key!r}]") for key, one in tree.items()}
    if isinstance(tree, tuple | list):
        parts = [leaf_names(one, f"{name}[{at}]") for at, one in enumerate(tree)]
        return like(tree, parts)
    return name


def leaves(tree: Tree) -> Iterator[Any]:
    """The leaves of a tree, from left to right."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, tuple | list):
        for part in tree:
            yield from leaves(part)
    else:
        yield tree


def count_rows(tree: Tree) -> int:
    """The number of samples in a batch: rows of its first leaf."""
    return len(tree) if isinstance(tree, Tensor) else len(next(leaves(tree)))


def split_rows(tree: Tree, size: int) -> list[Tree]:
    """The batch in batches of `size` samples; the last may be shorter."""
    if isinstance(tree, Tensor):
        return list(torch.split(tree, size))
    starts = range(0, count_rows(tree), size)
    return [map_tree(itemgetter(slice(start, start + size)), tree) for start in starts]


def shapes_of(tree: Tree) -> Hashable:
    """The shapes of all leaves, to tell batches apart."""
    return tree.shape if isinstance(tree, Tensor) else tuple(leaf.shape for leaf in leaves(tree))


def device_of(tree: Tree) -> torch.device:
    """The device of the first leaf."""
    device: torch.device = next(leaves(tree)).device
    return device


def arguments(inputs: Tree) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """A model's arguments: a tuple or list is several, a mapping is named ones, else it is one."""
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    return (tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)), {}


def call(model: nn.Module, inputs: Tree) -> Any:
    """The model's answer to a batch: model(x), model(*x) of a tuple, model(**x) of a dict."""
    if isinstance(inputs, Tensor):
        return model(inputs)
    args, named = arguments(inputs)
    return model(*args, **named)


def like(branch: Tree, parts: list[Any]) -> Tree:
    """The parts in a list, tuple or named tuple, whichever `branch` is."""
    if isinstance(branch, list):
        return parts
    return type(branch)(*parts) if hasattr(branch, "_fields") else tuple(parts)


def describe(tree: Tree) -> str:
    """Types and shapes in one line, such as {ids: int64 (2, 9), mask: bool (2, 9)}."""
    if isinstance(tree, Mapping):
        return "{" + ", ".join(f"{key}: {describe(part)}" for key, part in tree.items()) + "}"
    if isinstance(tree, tuple | list):
        return "(" + ", ".join(map(describe, tree)) + ")"
    if not hasattr(tree, "dtype"):
        return type(tree).__name__
    return f"{str(tree.dtype).removeprefix('torch.')} {tuple(tree.shape)}"
