"""Training steps: forward, loss, backward, optimiser."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedpace.learn.samples.samples import Batch
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.optimiser import client_optimiser
from fedpace.learn.tree import Tree, call, count_rows

Step = Callable[[Tree, Tree], None]
"""Makes one training step, on a batch's inputs and targets."""
Loss = Callable[[Any, Any], Tensor]
Backward = Callable[[Tensor], None]
"""Propagates a loss back through the model."""


class ModelPart(AbstractContextManager["ModelPart"], Protocol):
    """The last `depth` layers of a model, to be trained while it is entered: a Cut, or StoppedBackward.

    trained: their parameters; goals: parameters that the backward pass is led to, None for all that
    require gradients.
    """

    depth: int
    trained: list[Tensor]
    goals: list[Tensor] | None

    def lone_sample(self) -> AbstractContextManager[None]: ...


class Steps(Protocol):
    """Makes the steps of one task after the other, with a new optimiser for each task.

    begin(lr): a task begins, with this learning rate. on(part): while entered, makes steps at that part
    of the model. Where a task is trained at one part after another, the optimiser's state lives on.
    """

    def begin(self, lr: float) -> None: ...
    def on(self, part: ModelPart) -> AbstractContextManager[Step]: ...


def train(steps: Steps, part: ModelPart, batches: Iterable[Batch]) -> Batch | None:
    """Make a step on each batch; gives the last of them."""
    batch = None
    with steps.on(part) as make:
        for batch in batches:
            make(*batch)
    return batch


class EagerSteps:
    """Makes every step as Python says it: for all models, optimisers and devices."""

    def __init__(self, model: nn.Module, loss: Loss, settings: TrainSettings) -> None:
        self._model, self._loss, self._settings = model, loss, settings
        self._lr = settings.lr
        self._earlier: Optimizer | None = None

    def begin(self, lr: float) -> None:
        self._lr = lr
        self._earlier = None

    @contextmanager
    def on(self, part: ModelPart, backward: Backward | None = None) -> Iterator[Step]:
        """Make steps at a part. backward: the pass to make, which leaves gradients to the optimiser."""
        optimiser, earlier = client_optimiser(self._settings, part.trained, self._lr), self._earlier
        if earlier is not None:
            optimiser.state.update((p, earlier.state[p]) for p in part.trained if p in earlier.state)
        self._earlier = optimiser
        with part:
            yield partial(step, self._model, self._loss, part, optimiser, backward=backward)


def step(
    model: nn.Module,
    loss: Loss,
    part: ModelPart,
    optimiser: Optimizer,
    inputs: Tree,
    targets: Tree,
    backward: Backward | None = None,
) -> None:
    """One step; the part must be entered. backward: in place of the pass to the part's goals."""
    with part.lone_sample() if count_rows(inputs) == 1 else nullcontext():
        value = loss(call(model, inputs), targets)
    if value.requires_grad:  # not so where the loss uses none of the trained layers
        optimiser.zero_grad()
        if backward is None:
            torch.autograd.backward(value, inputs=part.goals)
        else:
            backward(value)
        optimiser.step()
