"""Tries whether a model can be trained in a stack, and counts what one job of a stack takes.

It is tried rather than read off the model's modules: one pass alone and one in a stack, from the
initial weights and on the task's first samples, so that the answer does not depend on earlier jobs.
"""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from fedpace.learn.device import at_work, open_device
from fedpace.learn.many.stacks.stack import Stack, StackBatch
from fedpace.learn.many.stacks.steps import Gradients
from fedpace.learn.model.weights import Weights
from fedpace.learn.train.steps import ModelPart
from fedpace.learn.train.trainer import Trainer
from fedpace.learn.tree import call, count_rows, map_tree

_TOLERANCE = {"float32": 1e-2, "tf32": 0.05, "bf16": 0.3}
"""Of the norm of a gradient in float32; rounding stays far below it, another gradient does not."""

_SAMPLES = 4
"""On a CPU. On a GPU whole batches are tried: other kernels may be made for other sizes."""


class CannotStack(Exception):
    """Says why jobs of a shape are trained one by one."""


class StackProbe:
    """Compares a few samples, alone in float32 and in a stack.

    saved: bytes that a forward pass over a whole batch keeps for the backward pass, but for weights.
    """

    def __init__(self, trainer: Trainer, gradients: Gradients, batch_size: int) -> None:
        self._body, self._loss = trainer.body(None), trainer.task.loss
        self._device = open_device(trainer.device)
        self._gradients, self._old = gradients, trainer.initial().on(self._device)
        most = _SAMPLES if self._device.type == "cpu" else batch_size
        few = min(batch_size, len(trainer.task.train), most)
        before = self._states()
        self._inputs, self._targets = trainer.gather(np.arange(few))
        self._drawn = not all(map(torch.equal, before, self._states()))
        self._share = few / batch_size
        self._precision = trainer.settings.precision
        self._weights = {param.data_ptr() for param in self._body.model.parameters()}
        self.saved = 0
        self._last: Sequence[Tensor | None] = ()

    def check(self, depth: int) -> None:
        """Raise CannotStack where a stack would give something else, or nothing."""
        if self._drawn:
            raise CannotStack("reading a sample draws random numbers")
        part = self._body.cut(depth)
        expected = self._alone(part)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*performance drop")
                self._last = self._stacked(part)
        except Exception as error:  # whatever a model's own code makes of a stacked tensor
            reason = str(error).partition("\n")[0]
            raise CannotStack(f"torch cannot run the model in a stack: {reason}") from error
        if not self._close(self._last, expected):
            raise CannotStack("gradients in a stack are not those of the model alone")

    def as_in_full(self, depth: int) -> bool:
        """Say whether gradients of the last layers are those of the stack that was checked last."""
        expected = self._alone(self._body.cut(depth))
        return self._close(self._last[len(self._last) - len(expected) :], expected)

    @property
    def targets_are_classes(self) -> bool:
        """Say whether targets are whole numbers, one of which cross entropy can leave out."""
        return isinstance(self._targets, Tensor) and self._targets.dtype == torch.int64

    def independent(self, depth: int) -> bool:
        """Say whether the model's output for a sample is the same beside other samples."""
        samples = count_rows(self._inputs)
        if samples < 2:
            return False
        order = [*range(samples - 1), 0]
        other = map_tree(lambda one: one[order], self._inputs)
        self._body.bound.load(self._old)
        with self._body.cut(depth), torch.no_grad():
            here, there = call(self._body.model, self._inputs), call(self._body.model, other)
        if not isinstance(here, Tensor) or here.shape[:1] != (samples,):
            return False
        return torch.allclose(here[:-1], there[:-1], rtol=1e-3, atol=1e-4)

    def _close(self, found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> bool:
        """Compare all in one: the gradient of a bias that has no effect is nothing but rounding."""
        if [one is None for one in found] != [one is None for one in expected]:
            return False
        each = zip(found, expected, strict=True)
        pairs = [(a, b) for a, b in each if a is not None and b is not None]
        away = sum(float((a - b).double().square().sum()) for a, b in pairs)
        return away <= _TOLERANCE[self._precision] ** 2 * sum(
            float(b.double().square().sum()) for _, b in pairs
        )

    def _alone(self, part: ModelPart) -> Sequence[Tensor | None]:
        self._body.bound.load(self._old)
        states, self.saved = self._states(), 0
        with part:
            lone = part.lone_sample() if count_rows(self._inputs) == 1 else nullcontext()
            with lone, saved_tensors_hooks(self._count, lambda tensor: tensor):
                value = self._loss(call(self._body.model, self._inputs), self._targets)
            if not all(map(torch.equal, states, self._states())):
                raise CannotStack("the model draws random numbers, or changes buffers such as means")
            if not value.requires_grad:
                return [None] * len(part.trained)
            return torch.autograd.grad(value, part.trained, allow_unused=True)

    def _stacked(self, part: ModelPart) -> Sequence[Tensor | None]:
        """Gradients of the first of two jobs; the other one has other weights."""
        old = self._old
        other = Weights(old.params / 2, old.buffers, old.counters)
        stack = Stack(self._body.bound, 2)
        stack.load([old, other])
        batch = self._inputs, self._targets
        pair = StackBatch(*map_tree(lambda one: torch.stack([one, one.flip(0)]), batch))
        with part, at_work(self._device, self._precision):
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
