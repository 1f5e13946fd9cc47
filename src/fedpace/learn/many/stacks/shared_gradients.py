"""Gradients that several operators of a model add up to, summed where they are.

torch's autograd has each operator write its own, and reads both to add them. Here operators that a
model uses for the same weights, or the same images, are found in the graph before it is gone back
through: the one that comes later adds to what the earlier one left.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from fedpace.learn.many.stacks.convolutions import StackedConvolution, StackedShortcut
from fedpace.learn.many.stacks.function import LeftSlopes
from fedpace.learn.many.stacks.normalisation import StackedNormalisation
from fedpace.learn.many.stacks.operators.batch_norm_kernels import NormalisedBatches
from fedpace.learn.many.stacks.operators.dense import SharedGradient, StackedLinear

_NORMS: tuple[Any, ...] = StackedNormalisation._backward_cls, NormalisedBatches._backward_cls
_IMAGES, _WEIGHTS, _MORE = 0, 1, 3
"""Places among the inputs of a convolution or a shortcut, a dense layer and a normalisation."""


def share_gradients(value: Tensor) -> None:
    """Share gradients on the way back from `value`, each of whose operators is gone through once."""
    dense: dict[Any, list[Any]] = defaultdict(list)
    images: dict[Any, Any] = {}
    added: dict[Any, Any] = {}
    for node in _nodes(value):
        inputs = node.next_functions
        if isinstance(node, StackedLinear._backward_cls):
            dense[inputs[_WEIGHTS]].append(node)
        elif isinstance(node, StackedConvolution._backward_cls):
            images[_origin(inputs[_IMAGES])] = node
        elif isinstance(node, StackedShortcut._backward_cls):
            added[_origin(inputs[_IMAGES])] = node
        elif isinstance(node, _NORMS) and node.more:
            added[_origin(inputs[_MORE])] = node
    for (weights, _), products in dense.items():
        if weights is not None and len(products) > 1:
            shared = SharedGradient(len(products))
            for node in products:
                node.shared = shared
    for origin in images.keys() & added.keys():
        if origin[0] is not None:
            images[origin].left = added[origin].left = LeftSlopes()


def _nodes(value: Tensor) -> Iterator[Any]:
    """Operators of the graph behind a tensor, each once."""
    seen: set[Any] = set()
    waiting: list[Any] = [value.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            waiting += [one for one, _ in node.next_functions]


def _origin(edge: tuple[Any, int]) -> tuple[Any, int]:
    """The operator that a tensor comes from, and its place there, whatever shapes it went through."""
    node, place = edge
    while node is not None and node.name() == "ViewBackward0":
        node, place = node.next_functions[0]
    return node, place
