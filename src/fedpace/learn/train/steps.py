"""Training steps: forward, loss, backward, optimiser."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.optimiser import client_optimiser

Batches = Iterable[tuple[Tensor, Tensor]]
Loss = Callable[[Any, Tensor], Tensor]
Backward = Callable[[Tensor], None]
"""Propagates a loss back through the model."""


class Part(AbstractContextManager["Part"], Protocol):
    """The last `depth` layers of a model, to be trained while it is entered: a Cut or a Stopped.

    trained: their parameters; goals: parameters that the backward pass is led to, None for all that
    require gradients.
    """

    depth: int
    trained: list[Tensor]
    goals: list[Tensor] | None

    def lone_sample(self) -> AbstractContextManager[None]: ...


class Steps(Protocol):
    """Makes the steps of one task after the other, with a new optimiser for each task.

    begin(lr): a task begins, with this learning rate. Where it is trained at one part of the model
    after another, the optimiser's state lives on.
    """

    def begin(self, lr: float) -> None: ...
    def train(self, part: Part, batches: Batches) -> None: ...


class Eager:
    """Makes every step as Python says it: for all models, optimisers and devices."""

    def __init__(self, model: nn.Module, loss: Loss, settings: TrainSettings) -> None:
        self._model, self._loss, self._settings = model, loss, settings
        self._lr = settings.lr
        self._earlier: Optimizer | None = None

    def begin(self, lr: float) -> None:
        self._lr = lr
        self._earlier = None

    def train(self, part: Part, batches: Batches, backward: Backward | None = None) -> None:
        """backward: the pass to make, of which the optimiser takes what gradients it leaves."""
        optimiser, earlier = client_optimiser(self._settings, part.trained, self._lr), self._earlier
        if earlier is not None:
            optimiser.state.update((p, earlier.state[p]) for p in part.trained if p in earlier.state)
        self._earlier = optimiser
        with part:
            for inputs, targets in batches:
                step(self._model, self._loss, part, optimiser, inputs, targets, backward)


def step(
    model: nn.Module,
    loss: Loss,
    part: Part,
    optimiser: Optimizer,
    inputs: Tensor,
    targets: Tensor,
    backward: Backward | None = None,
) -> None:
    """One step; the part must be entered. backward: in place of the pass to the part's goals."""
    if len(inputs) == 1:
        with part.lone_sample():
            value = loss(model(inputs), targets)
    else:
        value = loss(model(inputs), targets)
    if value.requires_grad:  # not so where the loss uses none of the trained layers
        optimiser.zero_grad()
        if backward is None:
            torch.autograd.backward(value, inputs=part.goals)
        else:
            backward(value)
        optimiser.step()
