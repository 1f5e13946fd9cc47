"""Tries whether a model can be trained in a stack, and counts what one job of a stack takes.

It is tried rather than read off the model's modules: one pass alone and one in a stack, from the
initial weights and on the task's first samples, so that the answer does not depend on earlier jobs.
"""

import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from fedpace.learn.device import at_work, open_device
from fedpace.learn.many.stacks.operators.mode import CalledFunctions
from fedpace.learn.many.stacks.stack import Stack, StackBatch
from fedpace.learn.many.stacks.steps import Gradients
from fedpace.learn.model.weights import Weights
from fedpace.learn.samples.samples import Batch
from fedpace.learn.train.steps import ModelPart
from fedpace.learn.train.trainer import Trainer
from fedpace.learn.tree import Tree, call, count_rows, map_tree

_TOLERANCE = {"float32": 1e-2, "tf32": 0.05, "bf16": 0.3}
"""Of the norm of a gradient in float32; rounding stays far below it, another gradient does not."""

_SAMPLES = 4
"""On a CPU. On a GPU whole batches are tried: other kernels may be made for other sizes."""


class CannotStack(Exception):
    """Says why jobs of a shape are trained one by one."""


class _PassResult(NamedTuple):
    """What a forward and a backward pass leave: gradients of what is trained, and buffers."""

    gradients: Sequence[Tensor | None]
    buffers: Sequence[Tensor]


class StackProbe:
    """Compares a few samples, alone in float32 and in a stack.

    saved: bytes that a forward pass over a whole batch keeps for the backward pass, but for weights.
    sequences: whether the model has recurrent layers or attention, and no convolutions of images.
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
        self.saved, self._tensors = 0, 0
        self.sequences = False
        self._gather = trainer.gather
        self._places = np.arange(min(batch_size, len(trainer.task.train)))
        self._last = _PassResult((), ())
        self._changes = False  # whether a forward pass changes buffers

    def check(self, depth: int) -> None:
        """Raise CannotStack where a stack would give something else, or nothing."""
        if self._drawn:
            raise CannotStack("reading a sample draws random numbers")
        part, batch = self._body.cut(depth), (self._inputs, self._targets)
        expected = self._alone(part, batch)
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message=".*performance drop")
                self._last = self._stacked(part, self._pair(batch))
        except Exception as error:  # whatever a model's own code makes of a stacked tensor
            reason = str(error).partition("\n")[0]
            raise CannotStack(f"torch cannot run the model in a stack: {reason}") from error
        if not self._close(self._last.gradients, expected.gradients):
            raise CannotStack("gradients in a stack are not those of the model alone")
        if not self._close(self._last.buffers, expected.buffers):
            raise CannotStack("buffers in a stack do not become those of the model alone")

    def as_in_full(self, depth: int) -> bool:
        """Say whether a stack of the full model that was checked last does for the last layers, too.

        Layers that are not trained are told to batch normalisation.
        """
        full = self._body.layout.depth
        expected = self._alone(self._body.cut(depth), (self._inputs, self._targets))
        found = self._last
        if self._changes:
            pair = self._pair((self._inputs, self._targets))
            frozen = torch.full((2,), full - depth, device=self._device)
            found = self._stacked(self._body.cut(full), replace(pair, frozen=frozen))
        last = found.gradients[len(found.gradients) - len(expected.gradients) :]
        return self._close(last, expected.gradients) and self._close(found.buffers, expected.buffers)

    @property
    def mean_bytes(self) -> float:
        """Bytes of a tensor that a forward pass keeps, in the mean."""
        return self.saved / max(self._tensors, 1)

    def same_bits(self) -> bool:
        """Say whether a job's gradients are the same bits in stacks of one, two and three."""
        old, numbers = self._old, range(3)
        olds = [Weights(old.params * (1 - at / 10), old.buffers, old.counters) for at in numbers]
        whole = self._gather(self._places)
        batches = [map_tree(partial(torch.roll, shifts=at, dims=0), whole) for at in numbers]
        alone = [self._rows(olds[at : at + 1], batches[at : at + 1])[0] for at in numbers]
        several = [self._rows(olds[:few], batches[:few]) for few in (2, 3)]
        pairs = [pair for rows in several for pair in zip(rows, alone, strict=False)]
        return all(all(map(torch.equal, found, expected)) for found, expected in pairs)

    @property
    def targets_are_classes(self) -> bool:
        """Say whether targets are whole numbers, one of which a loss can leave out."""
        return isinstance(self._targets, Tensor) and self._targets.dtype == torch.int64

    def fills(self, depth: int, ignored: int) -> bool:
        """Say whether a short batch can be filled up with samples that have the target `ignored`.

        Then the model's output for a sample is the same beside other samples, but for batch statistics,
        which a stack takes of the real samples: that is tried, and on a GPU that kernels leave out the
        right ones.
        """
        samples = count_rows(self._inputs)
        if samples < 2:
            return False
        order = [*range(samples - 1), 0]
        other = map_tree(lambda one: one[order], self._inputs)
        self._body.bound.load(self._old)
        with self._body.cut(depth) as part, part.lone_sample(), torch.no_grad():
            here, there = call(self._body.model, self._inputs), call(self._body.model, other)
        if not isinstance(here, Tensor) or here.shape[:1] != (samples,):
            return False
        if not torch.allclose(here[:-1], there[:-1], rtol=1e-3, atol=1e-4):
            return False
        tried = self._changes or self._device.type == "cuda"
        return not tried or self._as_short(depth, other, ignored)

    def _as_short(self, depth: int, inputs: Tree, ignored: int) -> bool:
        """Compare a batch that lacks a sample with one that is filled up."""
        part, targets = self._body.cut(depth), self._targets.clone()
        short = map_tree(lambda one: one[:-1], (self._inputs, self._targets))
        targets[-1] = ignored
        real = torch.ones(2, len(targets), dtype=torch.bool, device=self._device)
        real[:, -1] = False
        inputs, targets = map_tree(lambda one: torch.stack([one, one]), (inputs, targets))
        pair = StackBatch(inputs, targets, real=real)
        expected, found = self._alone(part, short), self._stacked(part, pair)
        same = self._close(found.gradients, expected.gradients)
        return same and self._close(found.buffers, expected.buffers)

    def _close(self, found: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> bool:
        """Compare all in one: the gradient of a bias that has no effect is nothing but rounding."""
        if [one is None for one in found] != [one is None for one in expected]:
            return False
        each = zip(found, expected, strict=True)
        pairs = [(a, b) for a, b in each if a is not None and b is not None]
        if not pairs:
            return True
        # One number comes back of all: each would be a wait for the GPU.
        away = torch.stack([(a - b).double().square().sum() for a, b in pairs]).sum()
        whole = torch.stack([b.double().square().sum() for _, b in pairs]).sum()
        return bool(away <= _TOLERANCE[self._precision] ** 2 * whole)

    def _alone(self, part: ModelPart, batch: Batch) -> _PassResult:
        self._body.bound.load(self._old)
        before, states, self.saved, self._tensors = self._buffers(), self._states(), 0, 0
        inputs, targets = batch
        with part:
            lone = part.lone_sample() if count_rows(inputs) == 1 else nullcontext()
            counting = saved_tensors_hooks(self._count, lambda tensor: tensor)
            with lone, counting, CalledFunctions() as seen:
                value = self._loss(call(self._body.model, inputs), targets)
            self.sequences = seen.sequences
            if not all(map(torch.equal, states, self._states())):
                raise CannotStack("the model draws random numbers, or changes buffers it does not keep")
            after = self._buffers()
            self._changes = self._changes or not all(map(torch.equal, before, after))
            if not value.requires_grad:
                return _PassResult([None] * len(part.trained), after)
            return _PassResult(torch.autograd.grad(value, part.trained, allow_unused=True), after)

    def _pair(self, batch: Batch) -> StackBatch:
        return StackBatch(*map_tree(lambda one: torch.stack([one, one.flip(0)]), batch))

    def _stacked(self, part: ModelPart, pair: StackBatch) -> _PassResult:
        """Gradients and buffers of the first of two jobs; the other one has other weights."""
        old = self._old
        other = Weights(old.params / 2, old.buffers, old.counters)
        stack = Stack(self._body.bound, 2)
        stack.load([old, other])
        with part, at_work(self._device, self._precision):
            found = self._gradients(part, stack.params, stack.buffers, pair)
        buffers = [value[0] for value in stack.buffers.values()]
        return _PassResult([None if one is None else one[0] for one in found], buffers)

    def _rows(self, olds: Sequence[Weights], batches: Sequence[Batch]) -> list[list[Tensor]]:
        """Gradients and buffers of each job of a stack of full models."""
        stack = Stack(self._body.bound, len(olds))
        stack.load(olds)
        together = StackBatch(*map_tree(lambda *each: torch.stack(each), *batches))
        with self._body.cut(self._body.layout.depth) as part:
            found = self._gradients(part, stack.params, stack.buffers, together)
        tensors = [*(one for one in found if one is not None), *stack.buffers.values()]
        return [[one[at] for one in tensors] for at in range(len(olds))]

    def _buffers(self) -> list[Tensor]:
        """Buffers that weights hold, in the order of a stack."""
        own, layers = dict(self._body.model.named_buffers()), self._body.layout.layers
        names = [name for layer in layers for name in layer.buffers]
        return [own[name].clone() for name in (*names, *(n for one in layers for n in one.counters))]

    def _states(self) -> list[Tensor]:
        """What a forward pass must not change: buffers beside the weights, and torch's generators."""
        layers = self._body.layout.layers
        kept = {name for layer in layers for name in (*layer.buffers, *layer.counters)}
        own = self._body.model.named_buffers()
        states = [buffer.clone() for name, buffer in own if name not in kept]
        states.append(torch.get_rng_state())
        if self._device.type == "cuda":
            states.append(torch.cuda.get_rng_state(self._device))
        return states

    def _count(self, tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in self._weights:
            self.saved += int(tensor.numel() * tensor.element_size() / self._share)
            self._tensors += 1
        return tensor.detach()
