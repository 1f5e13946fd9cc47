"""Stacks on a GPU: steps of many clients at once, captured as one CUDA graph and replayed.

Clients of any depth, number of steps and size of batches lie in one stack. It is trained in full;
layers that a client has frozen are set back after each step, which gives what a cut gives, since such
models neither draw numbers nor keep statistics. That costs a full backward pass, and a stack of many
costs little more than one of few. Batches are always of the full size, short and small ones filled up,
and the rows of clients that are done train on until the stack is cut to the next size: a graph exists
for a few sizes only.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from fedpace.core.policy import step_size
from fedpace.learn.device import at_work, open_device, upload
from fedpace.learn.many.executor import Jobs
from fedpace.learn.many.stacks.replay.starts import StartWeights
from fedpace.learn.many.stacks.stack import IGNORED, Stack, StackBatch
from fedpace.learn.many.stacks.steps import Gradients, first_rows
from fedpace.learn.model.weights import Update
from fedpace.learn.phases import PhaseClock
from fedpace.learn.samples.samples import Batch
from fedpace.learn.train.graphs import CannotCapture, Capture
from fedpace.learn.train.job import Job
from fedpace.learn.train.optimiser import client_optimiser
from fedpace.learn.train.reused_optimisers import capturable, new_state, tensors_of, with_moving_lr
from fedpace.learn.train.steps import ModelPart
from fedpace.learn.train.trainer import Trainer
from fedpace.learn.tree import leaves, map_tree


def room_for(jobs: int) -> int:
    """Rows of the stack that so many jobs are put into."""
    return 1 << (jobs - 1).bit_length() if jobs <= 8 else -(-jobs // 8) * 8


class _Size(NamedTuple):
    """Size of a stack that a graph is captured for. mixed: some layers of some clients are frozen."""

    rows: int
    batch_size: int
    mixed: bool


class ReplayTrainer:
    """Trains stacks of jobs of one learning rate, `most` jobs at most.

    capture: how steps are made to be replayed; None: they are made anew each time. ignored: the target
    that the loss leaves out. The optimiser of the
    trainer's settings must be `capturable`. Results are those of `Trainer.run` but for rounding.
    clock: is told the phases of a start.
    """

    def __init__(
        self,
        trainer: Trainer,
        gradients: Gradients,
        capture: Capture | None,
        most: int,
        ignored: int | None = IGNORED,
        clock: PhaseClock | None = None,
    ) -> None:
        self.most, self._ignored = most, IGNORED if ignored is None else ignored
        self._clock = clock or PhaseClock()
        self._device = open_device(trainer.device)
        settings = trainer.settings
        self._lr: Tensor | None = None  # where it moves: a graph would hold a number for ever
        if self._device.type == "cuda":
            settings = capturable(settings) or settings
            if settings.decay:
                self._lr = torch.tensor(settings.lr, device=self._device)
                settings = with_moving_lr(settings)
        self._trainer, self._settings, self._gradients = trainer, settings, gradients
        self._capture = capture
        self._body = trainer.body(None)
        rows = room_for(most)
        with torch.no_grad():
            self._stack = Stack(self._body.bound, rows, torch.zeros)
            self._tensors = [*self._stack.params, *self._stack.buffers.values()]
            self._starts = StartWeights(self._stack)
        layers = trainer.layout.layers
        self._layers = [at for at, layer in enumerate(layers) for _ in layer.params]
        self._layers += [at for at, layer in enumerate(layers) for _ in layer.buffers]
        self._layers += [at for at, layer in enumerate(layers) for _ in layer.counters]
        self._frozen = torch.zeros(rows, dtype=torch.int64, device=self._device)
        self._index: dict[int, Tensor] = {}
        """By batch size, places of each row's samples and then the number of real ones."""
        self._given: dict[int, Batch] = {}
        """Batches of each size, where samples are not on the device and are brought for each step."""
        self._replays: dict[_Size, Callable[[], None]] = {}
        self._optimisers: dict[int, Optimizer] = {}
        self._state = new_state(settings, self._stack.params)
        self._moments = tensors_of(self._state)

    def run(self, jobs: Jobs, width: int) -> list[Update]:
        """Train jobs, those with most steps first; weights are on the device.

        width: samples that all batches are filled up to.
        """
        settings, whole = self._settings, self._trainer.layout.depth
        first, mixed = jobs[0][0], any(job.result.depth < whole for job, _ in jobs)
        with at_work(self._device, settings.precision), self._body.cut(whole) as part, torch.no_grad():
            alive = _alive(jobs)
            by_left = {left: _Size(room_for(left), width, mixed) for left in set(alive)}
            sizes = [by_left[left] for left in alive]
            for size in dict.fromkeys(sizes):
                if size not in self._replays:
                    with self._clock.phase("capture"):
                        self._replays[size] = self._captured(size, partial(self._step, size, part))
            self._begin(jobs, step_size(settings.lr, settings.decay, first.version), sizes[0])
            return self._train(jobs, alive, sizes, mixed)

    def _train(
        self, jobs: Jobs, alive_at: Sequence[int], sizes: Sequence[_Size], mixed: bool
    ) -> list[Update]:
        layers, settings = self._trainer.layout.depth, self._settings
        index = self._index[sizes[0].batch_size]
        each = [job for job, _ in jobs]
        places = self._samples(each, sizes[0])
        results = [job.result for job in each]
        switches = {one.full_steps if one.depth < layers else 0 for one in results} if mixed else set()
        done: list[Update] = []  # the last jobs first: those with fewest steps
        left = len(jobs)
        for number, (alive, size) in enumerate(zip(alive_at, sizes, strict=True)):
            if alive < left:
                done = [*self._stack.updates(jobs[alive:left], settings, alive), *done]
                left = alive
            if number in switches:
                frozen = [layers - one.depth if one.full_steps <= number else 0 for one in results]
                self._frozen[: len(jobs)].copy_(upload(torch.tensor(frozen), self._device))
                self._set_back(size.rows)
            index[: size.rows].copy_(places[number, : size.rows])
            if size.batch_size in self._given:
                self._bring(size, places[number, : size.rows, : size.batch_size])
            self._replays[size]()
        return [*self._stack.updates(jobs[:left], settings), *done]

    def _step(self, size: _Size, part: ModelPart) -> None:
        rows, batch = size.rows, size.batch_size
        places, count = torch.split(self._index[batch][:rows], [batch, 1], 1)
        inputs, targets = self._given.get(batch) or map_tree(
            lambda one: one.view(-1, batch, *one.shape[1:]), self._trainer.pick(places.reshape(-1))
        )
        inputs, targets = map_tree(lambda one: one[:rows], (inputs, targets))
        real = torch.arange(batch, device=self._device) < count
        shown = real.view(*real.shape, *[1] * (targets.ndim - 2))
        filled = torch.where(shown, targets, self._ignored)
        frozen = self._frozen[:rows] if size.mixed else None
        stacked = StackBatch(inputs, filled, real=real, frozen=frozen)
        with torch.enable_grad():
            found = self._gradients(part, *self._stack.first_rows(rows), stacked)
        optimiser = self._optimisers[rows]
        for param, gradient in zip(optimiser.param_groups[0]["params"], found, strict=True):
            # A fused optimiser takes nothing else.
            param.grad = None if gradient is None else gradient.contiguous()
        optimiser.step()
        optimiser.zero_grad()
        if size.mixed:
            self._set_back(rows)

    def _bring(self, size: _Size, places: Tensor) -> None:
        """Copy the samples of a step to where it reads them."""
        given, flat = self._given[size.batch_size], self._trainer.pick(places.reshape(-1))
        for into, values in zip(leaves(given), leaves(flat), strict=True):
            into[: size.rows].copy_(values.view(size.rows, size.batch_size, *values.shape[1:]))

    def _set_back(self, rows: int) -> None:
        """Bring layers that a client does not train to where they began."""
        numbers = torch.arange(self._trainer.layout.depth, device=self._device)
        kept = (self._frozen[:rows, None] > numbers).unbind(1)
        for layer, param, old in zip(self._layers, self._tensors, self._starts.olds, strict=True):
            stays, now = kept[layer].view(-1, *[1] * (param.ndim - 1)), param[:rows]
            if old.dtype == param.dtype:
                torch.where(stays, old[:rows], now, out=now)
            else:
                now.copy_(torch.where(stays, old[:rows], now))

    def _captured(self, size: _Size, step: Callable[[], None]) -> Callable[[], None]:
        """Capture a step, before weights are there: that makes steps with whatever lies in memory."""
        if size.batch_size not in self._index:
            shape = len(self._frozen), size.batch_size
            wide = len(self._frozen), size.batch_size + 1
            self._index[size.batch_size] = torch.zeros(wide, dtype=torch.int64, device=self._device)
            if not self._trainer.resident:
                first = self._trainer.gather(np.zeros(1, dtype=np.int64))
                self._given[size.batch_size] = map_tree(
                    lambda one: one.expand(*shape, *one.shape[1:]).clone(), first
                )
        if size.rows not in self._optimisers:
            self._optimisers[size.rows] = self._optimiser(size.rows)
        if self._capture is None:
            return step
        self._index[size.batch_size].zero_()[:, -1] = 1
        try:
            return self._capture(step)
        except CannotCapture as error:
            self._capture = None
            warnings.warn(f"training will be slow: {error}", stacklevel=2)
            return step

    def _begin(self, jobs: Jobs, lr: float, size: _Size) -> None:
        self._starts.load([weights for _, weights in jobs], size.rows)
        if self._moments:
            torch._foreach_zero_(self._moments)
        if size.mixed:
            self._frozen.zero_()
        if self._lr is not None:
            self._lr.fill_(lr)
            return
        for optimiser in self._optimisers.values():
            optimiser.param_groups[0]["lr"] = lr

    def _samples(self, jobs: Sequence[Job], size: _Size) -> Tensor:
        """Places of the samples of every step, row and batch, and behind them how many are real."""
        steps, rows, width = jobs[0].result.steps, size.rows, size.batch_size
        # Pinned: a GPU fetches it beside what it computes.
        pinned = self._device.type == "cuda"
        whole = torch.zeros((steps, rows, width + 1), dtype=torch.int64, pin_memory=pinned)
        places, counts = whole.numpy()[:, :, :width], whole.numpy()[:, :, width]
        counts.fill(1)
        for row, (job, orders) in enumerate(zip(jobs, self._trainer.orders(jobs), strict=True)):
            at, batch = 0, job.batch_size
            for order in orders:
                full = min(len(order) // batch, job.result.steps - at)
                places[at : at + full, row, :batch] = order[: full * batch].reshape(full, batch)
                counts[at : at + full, row] = batch
                at += full
                short = len(order) - full * batch
                if at < job.result.steps and (short or not full):
                    places[at, row, :short] = order[full * batch :]
                    counts[at, row] = short
                    at += 1
        return upload(whole, self._device)

    def _optimiser(self, rows: int) -> Optimizer:
        """An optimiser over the first rows of the parameters and of their state."""
        some, _ = self._stack.first_rows(rows)
        lr = self._settings.lr if self._lr is None else self._lr
        optimiser = client_optimiser(self._settings, some, lr)
        for part, param in zip(some, self._stack.params, strict=True):
            optimiser.state[part] = first_rows(self._state[param], param, rows)
        return optimiser


def _alive(jobs: Jobs) -> list[int]:
    """Jobs that are not done, by the number of the step; those with most steps come first."""
    steps = np.array([job.result.steps for job, _ in jobs])
    alive: list[int] = np.searchsorted(-steps, -np.arange(steps[0])).tolist()
    return alive
