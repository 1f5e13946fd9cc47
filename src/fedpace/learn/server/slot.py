"""A model of the server and the steps that its optimiser takes with aggregated updates.

There is one parameter for each layer; one that nobody trained has no gradient, so that neither it nor
its moments move. The same holds for numbers of a layer; of Adam's bias correction the layer decides.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Weights
from fedpace.learn.server.aggregate import AggregatedUpdate
from fedpace.learn.server.optimisers import make_optimiser
from fedpace.learn.settings import ServerSettings


class ModelSlot:
    """One model of the server and its optimiser, which works on copies of the layers' parameters."""

    def __init__(self, layout: Layout, weights: Weights, settings: ServerSettings) -> None:
        self._layout = layout
        self.weights = weights
        self._params = [nn.Parameter(layer.clone()) for layer in _by_layer(layout, weights.params)]
        self._optimiser = make_optimiser(settings, self._params)
        self._lr = settings.lr

    def step(self, aggregated: AggregatedUpdate, lr: float | None) -> None:
        """Make new weights; the old ones stay as they are for those who hold them.

        lr: learning rate of this one step, None for the usual one.
        """
        start, before = self._layout.start(aggregated.depth), self.weights
        touched = self._params[self._layout.depth - aggregated.depth :]
        self._optimiser.zero_grad(set_to_none=True)
        gradients = aggregated.params.neg().split_with_sizes([param.numel() for param in touched])
        for param, gradient in zip(touched, gradients, strict=True):
            param.grad = gradient
        for group in self._optimiser.param_groups:
            group["lr"] = self._lr if lr is None else lr
        with self._unheld_kept(aggregated.held):
            self._optimiser.step()
        buffers = move_buffers(before.buffers[start.buffers :], aggregated)
        counters = torch.maximum(before.counters[start.counters :], aggregated.counters)
        self.weights = Weights(
            torch.cat([param.detach() for param in self._params]),
            torch.cat([before.buffers[: start.buffers], buffers]),
            torch.cat([before.counters[: start.counters], counters]),
        )

    @contextmanager
    def _unheld_kept(self, held: Tensor | None) -> Iterator[None]:
        """Around a step: numbers that nobody holds, and their moments, stay as they are."""
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        if held is not None:
            for param, mask in zip(self._params, _by_layer(self._layout, held), strict=True):
                moments = self._optimiser.state.get(param, {}).values()
                for one in (param.detach(), *moments):
                    if isinstance(one, Tensor) and one.shape == param.shape:
                        kept.append((one, mask, one.clone()))
        yield
        for one, mask, old in kept:
            one.copy_(torch.where(mask, one, old))

    def state(self) -> dict[str, Any]:
        """Weights and moments, as plain values and tensors."""
        return {**vars(self.weights), "optimiser": copy.deepcopy(self._optimiser.state_dict())}

    def load(self, state: dict[str, Any]) -> None:
        """Become the slot whose `state()` this was."""
        self.weights = Weights(state["params"], state["buffers"], state["counters"])
        layers = _by_layer(self._layout, self.weights.params)
        with torch.no_grad():
            for param, layer in zip(self._params, layers, strict=True):
                param.copy_(layer)
        # A copy, since the optimiser goes on to change these tensors in place.
        self._optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))


def move_buffers(before: Tensor, aggregated: AggregatedUpdate) -> Tensor:
    """Move buffers towards the carriers' mean by their share; no optimiser does that.

    What does not change may be infinite, as in masks, and has no way to go.
    """
    moved = torch.lerp(before, aggregated.buffers, aggregated.buffer_shares)
    still = (before == aggregated.buffers) | (aggregated.buffer_shares == 0)
    return torch.where(still, before, moved)


def _by_layer(layout: Layout, params: Tensor) -> list[Tensor]:
    return [params[one.params : behind.params] for one, behind in pairwise(layout.starts)]
