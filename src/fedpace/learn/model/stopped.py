"""A backward pass that ends between two layers (ADEL-FL, SALF): what it got through is exact.

The forward pass is that of a full step: all modules train, dropout and batch statistics are those of
the whole model, unlike behind a `Cut`. The gradients of the layers reached are, bit for bit, those of
the full backward pass, and the others have none. `StoppedBackward` computes them where the depth is
known beforehand, as in simulation; `backward_until` finds the depth while it runs, as in deployment.

A weight that is used in several places (tied, or in a module that runs more than once) has its
gradient when its earliest use is done. Its layer is the place of its last use: `StoppedBackward` goes
on to the earliest for it, past layers that get nothing; and for `backward_until` the layer, with those
behind it, is reached only then: the depth jumps.
"""

from collections.abc import Callable
from functools import partial
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.autograd.graph import Node, get_gradient_edge

from fedpace.core.errors import PolicyError
from fedpace.learn.model.cut import Cut
from fedpace.learn.model.layers import BoundModel


class StoppedBackward(Cut):
    """While entered, steps train the last `depth` layers, from 1, of a model that runs in full.

    goals: what the backward pass is led to; it computes nothing else.
    """

    def __init__(self, bound: BoundModel, depth: int) -> None:
        if not 1 <= depth <= bound.layout.depth:
            raise PolicyError(
                f"a backward pass is to stop after {depth} layers, but the model has "
                f"{bound.layout.depth}; stop after one of them"
            )
        super().__init__(bound, bound.layout.depth)
        self.depth = depth
        self.goals = self.trained = bound.params(depth)


class _Enough(Exception):
    """Breaks off a backward pass."""


def backward_until(value: Tensor, bound: BoundModel, stop: Callable[[int], bool]) -> int:
    """Propagate `value` back through the model until `stop(depth)`; returns the depth reached.

    After each layer that completes an unbroken row of layers from the output, `stop` is asked with
    the length of the row, and a true answer ends the pass: at least one layer is reached, and the
    check of a clock is `lambda depth: clock() >= stop_at`. Layers that `value` does not use cost
    nothing and count with the next one towards the output, or from the start where there is none.
    Gradients beyond the row are set to None; the others are added to what is there, so that it must
    be None or zero beforehand, as for any step.
    """
    row = _Row(bound, value, stop)
    hooks = [node.register_hook(partial(row.meet, layer)) for node, layer in row.nodes]
    try:
        if value.requires_grad:
            torch.autograd.backward(value)
        depth = bound.layout.depth
    except _Enough:
        depth = row.depth
        for param in bound.frozen(depth):
            param.grad = None
    finally:
        for hook in hooks:
            hook.remove()
    return depth


class _Row:
    """Counts the layers whose gradients are complete.

    nodes: where autograd adds up the gradients of the parameters that are used, with their layers,
    numbered from 0 at the output.
    """

    def __init__(self, bound: BoundModel, value: Tensor, stop: Callable[[int], bool]) -> None:
        self._stop = stop
        layers = bound.layout.layers
        params = bound.params(len(layers))
        marks = accumulate((len(layer.params) for layer in layers), initial=0)
        used = _nodes(value)
        self.nodes = [
            (node, len(layers) - 1 - index)
            for index, (start, end) in enumerate(pairwise(marks))
            for param in params[start:end]
            if param.requires_grad and (node := get_gradient_edge(param).node) in used
        ]
        self._missing = [0] * len(layers)
        for _, layer in self.nodes:
            self._missing[layer] += 1
        self.depth = 0
        self._advance()

    def _advance(self) -> bool:
        """Go on to the next layer that is complete; say whether there was one."""
        before = self.depth
        while self.depth < len(self._missing) and not self._missing[self.depth]:
            self.depth += 1
        return self.depth > before

    def meet(self, layer: int, *gradients: object) -> None:
        """Count one parameter of a layer, whose hook this is."""
        self._missing[layer] -= 1
        if self._advance() and self.depth < len(self._missing) and self._stop(self.depth):
            raise _Enough


def _nodes(value: Tensor) -> set[Node]:
    """All of the graph behind `value`."""
    found: set[Node] = set()
    ahead = [value.grad_fn]
    while ahead:
        node = ahead.pop()
        if node is not None and node not in found:
            found.add(node)
            ahead.extend(following for following, _ in node.next_functions)
    return found
