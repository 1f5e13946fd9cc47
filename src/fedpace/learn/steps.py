"""Training steps: forward, loss, backward, optimiser."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedpace.learn.cut import Cut
from fedpace.learn.optimiser import client_optimiser
from fedpace.learn.settings import TrainSettings

Batches = Iterable[tuple[Tensor, Tensor]]
Loss = Callable[[Any, Tensor], Tensor]


class Steps(Protocol):
    """Makes the steps of one task after the other, with a new optimiser for each task.

    Where a task is trained at one cut after another, the optimiser's state lives on.
    """

    def begin(self) -> None: ...
    def train(self, cut: Cut, batches: Batches) -> None: ...


class Eager:
    """Makes every step as Python says it: for all models, optimisers and devices."""

    def __init__(self, model: nn.Module, loss: Loss, settings: TrainSettings) -> None:
        self._model, self._loss, self._settings = model, loss, settings
        self._earlier: Optimizer | None = None

    def begin(self) -> None:
        self._earlier = None

    def train(self, cut: Cut, batches: Batches) -> None:
        optimiser, earlier = client_optimiser(self._settings, cut.trained), self._earlier
        if earlier is not None:
            optimiser.state.update((p, earlier.state[p]) for p in cut.trained if p in earlier.state)
        self._earlier = optimiser
        with cut:
            for inputs, targets in batches:
                step(self._model, self._loss, cut, optimiser, inputs, targets)


def step(
    model: nn.Module, loss: Loss, cut: Cut, optimiser: Optimizer, inputs: Tensor, targets: Tensor
) -> None:
    """One step; the cut must be entered."""
    if len(inputs) == 1:
        with cut.lone_sample():
            value = loss(model(inputs), targets)
    else:
        value = loss(model(inputs), targets)
    if value.requires_grad:  # not so where the loss uses none of the trained layers
        optimiser.zero_grad()
        torch.autograd.backward(value)
        optimiser.step()
