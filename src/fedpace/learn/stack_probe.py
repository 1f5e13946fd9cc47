"""Whether a model can be trained in stacks, how, and what one job of a stack takes.

It is tried rather than read off the model's modules: one pass alone and one in a stack, from the
initial weights and on the task's first samples, so that the answer does not depend on earlier jobs.
"""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import cross_entropy

from fedpace.learn.device import at_work, drawing, open_device
from fedpace.learn.stack import Batch, Stack
from fedpace.learn.stack_chain import chain_of
from fedpace.learn.stack_groups import stack_size
from fedpace.learn.stack_steps import (
    ELEMENTWISE,
    Chained,
    Descent,
    Gradients,
    Optimised,
    StackSteps,
    Vmapped,
    plain_descent,
)
from fedpace.learn.steps import Part
from fedpace.learn.train import Trainer
from fedpace.learn.weights import Weights

_TOLERANCE = 1e-2
"""Of a gradient's norm; float32 and TF32 stay far below it, another gradient does not."""

_SAMPLES = 4


class CannotStack(Exception):
    """Says why jobs of a shape are trained one by one."""


@dataclass(frozen=True, slots=True)
class Way:
    """How jobs are stacked: by which steps, filled up or not, and how many of them at most.

    gradients: those that the steps follow; mixed: whether jobs of other depths may lie beside them, in
    a stack that is trained in full.
    """

    steps: StackSteps
    padded: bool
    size: int
    gradients: Gradients
    mixed: bool


def find_way(trainer: Trainer, batch_size: int, depth: int, after_full: bool) -> Way:
    """The way for jobs that train the last `depth` layers, or CannotStack.

    after_full: steps of the full model come before.
    """
    settings, task, body = trainer.settings, trainer.task, trainer.body(None)
    if settings.optimiser not in ELEMENTWISE or settings.options.get("differentiable"):
        raise CannotStack(f"optimiser {settings.optimiser} is not known to work number by number")
    row = chain_of(trainer)
    names = [name for layer in body.layout.layers for name in layer.params]
    gradients: Gradients = Vmapped(body.model, task.loss, names) if row is None else Chained(row)
    device, whole = open_device(trainer.device), body.layout.depth
    with at_work(device, settings.precision), drawing(device, 0):
        probe = _Probe(trainer, gradients, batch_size)
        parts = [body.cut(one) for one in ({depth, whole} if after_full else {depth})]
        for part in parts:
            probe.check(part)
        padded = row is not None or (
            task.loss is cross_entropy
            and task.train[1].dtype == torch.int64
            and all(probe.independent(part) for part in parts)
        )
        mixed = padded and all(probe.as_in_full(part, body.cut(whole)) for part in parts)
    steps: StackSteps = (
        Optimised(gradients, settings)
        if row is None or not plain_descent(settings)
        else Descent(row, settings)
    )
    numbers = sum(param.numel() * param.element_size() for param in body.bound.params(whole))
    size = stack_size((2 if device.type == "cpu" else 5) * numbers + probe.saved, device)
    return Way(steps, padded, size, gradients, mixed)


class _Probe:
    """A few samples, alone and in a stack.

    saved: bytes that a forward pass over a whole batch keeps for the backward pass, but for weights.
    """

    def __init__(self, trainer: Trainer, gradients: Gradients, batch_size: int) -> None:
        self._body, self._loss = trainer.body(None), trainer.task.loss
        self._device = open_device(trainer.device)
        self._gradients, self._old = gradients, trainer.initial().on(self._device)
        few = min(batch_size, len(trainer.task.train[0]), _SAMPLES)
        self._inputs, self._targets = trainer.gather(np.arange(few))
        self._share = few / batch_size
        self._weights = {param.data_ptr() for param in self._body.model.parameters()}
        self.saved = 0

    def check(self, part: Part) -> None:
        """Raise CannotStack where a stack would give something else, or nothing."""
        expected = self._alone(part)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*performance drop")
                found = self._stacked(part)
        except Exception as error:  # whatever a model's own code makes of a stacked tensor
            reason = str(error).partition("\n")[0]
            raise CannotStack(f"torch cannot run the model in a stack: {reason}") from error
        if not _close(found, expected):
            raise CannotStack("gradients in a stack are not those of the model alone")

    def as_in_full(self, part: Part, whole: Part) -> bool:
        """Whether gradients of the part are those of a stack that is trained in full."""
        if part is whole:
            return True
        expected = self._alone(part)
        try:
            self._alone(whole)  # must draw no numbers either
            found = self._stacked(whole)
        except Exception:  # whatever a model's own code makes of a stacked tensor
            return False
        return _close(found[len(found) - len(expected) :], expected)

    def independent(self, part: Part) -> bool:
        """Whether what the model says about a sample is the same beside other samples."""
        if len(self._inputs) < 2:
            return False
        other = self._inputs.clone()
        other[-1] = other[0]
        self._body.bound.load(self._old)
        with part, torch.no_grad():
            here, there = self._body.model(self._inputs), self._body.model(other)
        if not isinstance(here, Tensor) or here.shape[:1] != self._inputs.shape[:1]:
            return False
        return torch.allclose(here[:-1], there[:-1], rtol=1e-4, atol=1e-5)

    def _alone(self, part: Part) -> Sequence[Tensor | None]:
        self._body.bound.load(self._old)
        states, self.saved = self._states(), 0
        with part:
            lone = part.lone_sample() if len(self._inputs) == 1 else nullcontext()
            with lone, saved_tensors_hooks(self._count, lambda tensor: tensor):
                value = self._loss(self._body.model(self._inputs), self._targets)
            if not _same(states, self._states()):
                raise CannotStack("the model draws random numbers, or changes buffers such as means")
            if not value.requires_grad:
                return [None] * len(part.trained)
            return torch.autograd.grad(value, part.trained, allow_unused=True)

    def _stacked(self, part: Part) -> Sequence[Tensor | None]:
        """Of the first of two jobs; the other one has other weights."""
        old = self._old
        other = Weights(old.params / 2, old.buffers, old.counters)
        stack = Stack(self._body.bound, [old, other])
        pair = Batch(*(torch.stack([one, one.flip(0)]) for one in (self._inputs, self._targets)))
        with part:
            found = self._gradients(part, stack.params, stack.buffers, pair)
        return [None if one is None else one[0] for one in found]

    def _states(self) -> list[Tensor]:
        """All that a forward pass may change: buffers, and torch's generators."""
        states = [buffer.clone() for buffer in self._body.model.buffers()]
        states.append(torch.get_rng_state())
        if self._device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self._device))
        return states

    def _count(self, tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in self._weights:
            self.saved += int(tensor.numel() * tensor.element_size() / self._share)
        return tensor.detach()


def _same(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    return all(map(torch.equal, one, other))


def _close(found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> bool:
    """All in one: the gradient of a bias that has no effect is nothing but rounding."""
    if [one is None for one in found] != [one is None for one in expected]:
        return False
    pairs = [(a, b) for a, b in zip(found, expected, strict=True) if a is not None and b is not None]
    away = sum(float((a - b).double().square().sum()) for a, b in pairs)
    return away <= _TOLERANCE**2 * sum(float(b.double().square().sum()) for _, b in pairs)
