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
from fedpace.learn.server.history.average import ModelAverage
from fedpace.learn.server.history.last_updates import LastUpdates
from fedpace.learn.server.optimisers import make_optimiser
from fedpace.learn.settings import ServerSettings


class ModelSlot:
    """One model of the server and its optimiser, which works on a copy of the parameters.

    It lies on the device of `weights`. The mean of its versions, if one is asked for, holds those that
    were `settle`d. plain: a step is an addition, so that nothing but the weights changes with it.
    """

    def __init__(self, layout: Layout, weights: Weights, settings: ServerSettings) -> None:
        self._layout = layout
        self.weights = weights
        self._flat = weights.params.clone()
        self._params = [nn.Parameter(layer) for layer in _by_layer(layout, self._flat)]
        self._optimiser = make_optimiser(settings, self._params)
        self._lr, self.plain = settings.lr, settings.optimiser == "fedavg"
        self._average = ModelAverage(settings.average) if settings.average else None
        self.memory: LastUpdates | None = None
        if settings.memory != "none":
            self.memory = LastUpdates(layout, settings.memory == "corrected")

    def step(self, aggregated: AggregatedUpdate, lr: float | None) -> None:
        """Make new weights; the old ones stay as they are for those who hold them.

        lr: learning rate of this one step, None for the usual one.
        """
        start, before = self._layout.start(aggregated.depth), self.weights
        rate = self._lr if lr is None else lr
        for group in self._optimiser.param_groups:
            group["lr"] = rate
        params = self._added(aggregated, rate) if self.plain else self._optimised(aggregated)
        buffers, counters = before.buffers, before.counters  # never changed in place
        if aggregated.buffers.numel():
            moved = move_buffers(buffers[start.buffers :], aggregated)
            buffers = torch.cat([buffers[: start.buffers], moved])
        if aggregated.counters.numel():
            most = torch.maximum(counters[start.counters :], aggregated.counters)
            counters = torch.cat([counters[: start.counters], most])
        self.weights = Weights(params, buffers, counters)

    def settle(self) -> None:
        """The step that was taken is good: its weights count in the mean."""
        if self._average is not None:
            self._average.add(self.weights)

    @property
    def served(self) -> Weights:
        """What is tested and saved: the mean of the versions, or the weights where there is none."""
        mean = None if self._average is None else self._average.weights
        return self.weights if mean is None else mean

    def _added(self, aggregated: AggregatedUpdate, lr: float) -> Tensor:
        """New parameters as the optimiser would make them, but for what it does around a step."""
        old, start = self.weights.params, self._layout.start(aggregated.depth).params
        if len(aggregated.params) == len(old):
            new = torch.add(old, aggregated.params, alpha=lr)
        else:
            new = old.clone()
            new[start:].add_(aggregated.params, alpha=lr)
        return new if aggregated.held is None else torch.where(aggregated.held, new, old)

    def _optimised(self, aggregated: AggregatedUpdate) -> Tensor:
        """New parameters by a step of the optimiser."""
        touched = self._params[self._layout.depth - aggregated.depth :]
        with self._unheld_kept(aggregated.held):
            self._optimiser.zero_grad(set_to_none=True)
            gradients = aggregated.params.neg().split_with_sizes([param.numel() for param in touched])
            for param, gradient in zip(touched, gradients, strict=True):
                param.grad = gradient
            self._optimiser.step()
        return self._flat.clone()

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
        """Weights and moments, as plain values and tensors on the CPU."""
        state = {**vars(self.weights), "optimiser": copy.deepcopy(self._optimiser.state_dict())}
        if self._average is not None:
            state["average"] = self._average.state()
        if self.memory is not None:
            state["memory"] = self.memory.state()
        found: dict[str, Any] = moved_to(torch.device("cpu"), state)
        return found

    def load(self, state: dict[str, Any]) -> None:
        """Become the slot whose `state()` this was."""
        device = self._flat.device
        self.weights = Weights(state["params"], state["buffers"], state["counters"]).on(device)
        self._flat.copy_(self.weights.params)
        # A copy, since the optimiser goes on to change these tensors in place.
        self._optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))
        if self._average is not None:
            self._average.load(moved_to(device, state.get("average", {})))
        if self.memory is not None:
            self.memory.load(moved_to(device, state.get("memory", {})))


def move_buffers(before: Tensor, aggregated: AggregatedUpdate) -> Tensor:
    """Move buffers towards the carriers' mean by their share; no optimiser does that.

    What does not change may be infinite, as in masks, and has no way to go.
    """
    moved = torch.lerp(before, aggregated.buffers, aggregated.buffer_shares)
    still = (before == aggregated.buffers) | (aggregated.buffer_shares == 0)
    return torch.where(still, before, moved)


def moved_to(device: torch.device, values: Any) -> Any:
    """Plain values whose tensors are on `device`; those that are there already stay the same."""
    if isinstance(values, Tensor):
        return values.to(device)
    if isinstance(values, dict):
        return {key: moved_to(device, value) for key, value in values.items()}
    return [moved_to(device, one) for one in values] if isinstance(values, list) else values


def _by_layer(layout: Layout, params: Tensor) -> list[Tensor]:
    return [params[one.params : behind.params] for one, behind in pairwise(layout.starts)]
