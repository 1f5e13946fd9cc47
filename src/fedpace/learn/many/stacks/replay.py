"""Stacks on a GPU: steps of many clients at once, captured as one CUDA graph and replayed.

Clients of any depth and number of steps lie in one stack. It is trained in full; layers that a client
has frozen are set back after each step, which gives what a cut gives, since such models neither draw
numbers nor keep statistics. That costs a full backward pass, and a stack of many costs little more than
one of few. Batches are always of the full size, short ones filled up, and the rows of clients that are
done train on until the stack is cut to the next size: a graph exists for a few sizes only.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.optim import Optimizer

from fedpace.core.schedule import step_size
from fedpace.learn.device import at_work, open_device, upload
from fedpace.learn.many.stacks.stack import IGNORED, Batch, alike_together, fill, places_of
from fedpace.learn.many.stacks.steps import Gradients
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.graphs import CannotCapture, Capture
from fedpace.learn.train.job import Job
from fedpace.learn.train.optimiser import client_optimiser, effort
from fedpace.learn.train.reused import with_moving_lr
from fedpace.learn.train.steps import Part
from fedpace.learn.train.trainer import Trainer


def room_for(jobs: int, coarse: bool) -> int:
    """Rows of the stack that so many jobs are put into. coarse: where another size costs much."""
    if jobs <= 8:
        return 1 << (jobs - 1).bit_length()
    unit = 32 if coarse and jobs > 16 else 8
    return -(-jobs // unit) * unit


class _Size(NamedTuple):
    """What a graph is captured for. mixed: some layers of some clients are frozen."""

    rows: int
    batch_size: int
    mixed: bool


class Replay:
    """Trains stacks of jobs of one batch size and learning rate, `most` jobs at most.

    settings: those of the trainer, of an optimiser that is new once its state is zero (`capturable`);
    capture: how steps are made to be replayed; None: they are made anew each time.
    Results are those of `Trainer.run` but for rounding.
    """

    def __init__(
        self,
        trainer: Trainer,
        settings: TrainSettings,
        gradients: Gradients,
        capture: Capture | None,
        most: int,
        coarse: bool = False,
    ) -> None:
        self.most = most
        self._device = open_device(trainer.device)
        self._lr: Tensor | None = None  # where it moves: a graph would hold a number for ever
        if settings.decay and self._device.type == "cuda":
            self._lr = torch.tensor(settings.lr, device=self._device)
            settings = with_moving_lr(settings)
        self._trainer, self._settings, self._gradients = trainer, settings, gradients
        self._capture, self._coarse = capture, coarse
        self._body = trainer.body(None)
        layout, rows = trainer.layout, room_for(most, coarse)
        like = self._body.bound.params(layout.depth)
        with torch.no_grad():
            self._params = [like_of(param, rows) for param in like]
            self._olds = [like_of(param, rows) for param in like]
        own = dict(self._body.model.named_buffers())
        self._floats = [name for layer in layout.layers for name in layer.buffers]
        self._ints = [name for layer in layout.layers for name in layer.counters]
        self._buffers = {name: like_of(own[name], rows) for name in (*self._floats, *self._ints)}
        self._layers = [at for at, layer in enumerate(layout.layers) for _ in layer.params]
        self._frozen = torch.zeros(rows, dtype=torch.int64, device=self._device)
        self._count = torch.ones(rows, dtype=torch.int64, device=self._device)
        self._index: dict[int, Tensor] = {}
        self._replays: dict[_Size, Callable[[], None]] = {}
        self._optimisers: dict[int, Optimizer] = {}
        self._state = self._new_state()

    def run(self, jobs: Sequence[tuple[Job, Weights]]) -> list[Update]:
        """Updates come in the order of the jobs."""
        settings, whole = self._settings, self._trainer.layout.depth
        order = alike_together(jobs)
        chosen = [jobs[number][0] for number in order]
        mixed = any(job.depth < whole for job in chosen)
        lr = step_size(settings.lr, settings.decay, chosen[0].version)
        here = {id(weights): weights.on(self._device) for _, weights in jobs}
        olds = [here[id(jobs[number][1])] for number in order]
        with at_work(self._device, settings.precision), self._body.cut(whole) as part, torch.no_grad():
            sizes = [self._size(left, chosen[0].batch_size, mixed) for left in _alive(chosen)]
            for size in dict.fromkeys(sizes):
                if size not in self._replays:
                    self._replays[size] = self._captured(size, partial(self._step, size, part))
            self._begin(olds, lr, mixed)
            updates = self._train(chosen, olds, sizes, mixed)
        found = dict(zip(order, updates, strict=True))
        return [found[number] for number in range(len(jobs))]

    def _train(
        self, jobs: Sequence[Job], olds: Sequence[Weights], sizes: Sequence[_Size], mixed: bool
    ) -> list[Update]:
        layers, batch_size = self._trainer.layout.depth, jobs[0].batch_size
        index, (places, counts) = self._index[batch_size], self._plan(jobs, sizes[0].rows)
        switches = {job.full_steps if job.depth < layers else 0 for job in jobs} if mixed else set()
        done: list[Update] = []  # the last jobs first: those with fewest steps
        left = len(jobs)
        for number, (alive, size) in enumerate(zip(_alive(jobs), sizes, strict=True)):
            if alive < left:
                done = [*self._updates(jobs, olds, alive, left), *done]
                left = alive
            if number in switches:
                frozen = [layers - job.depth if job.full_steps <= number else 0 for job in jobs]
                self._frozen[: len(jobs)].copy_(upload(torch.tensor(frozen), self._device))
                self._set_back(size.rows)
            index[: size.rows].copy_(places[number, : size.rows])
            self._count[: size.rows].copy_(counts[number, : size.rows])
            self._replays[size]()
        return [*self._updates(jobs, olds, 0, left), *done]

    def _size(self, jobs: int, batch_size: int, mixed: bool) -> _Size:
        return _Size(room_for(jobs, self._coarse), batch_size, mixed)

    def _step(self, size: _Size, part: Part) -> None:
        rows, batch = size.rows, size.batch_size
        inputs, targets = (
            one.view(rows, batch, *one.shape[1:])
            for one in self._trainer.pick(self._index[batch][:rows].reshape(-1))
        )
        real = torch.arange(batch, device=self._device) < self._count[:rows, None]
        params = [param[:rows] for param in self._params]
        buffers = {name: value[:rows] for name, value in self._buffers.items()}
        with torch.enable_grad():
            found = self._gradients(
                part, params, buffers, Batch(inputs, torch.where(real, targets, IGNORED))
            )
        optimiser = self._optimisers[rows]
        for param, gradient in zip(optimiser.param_groups[0]["params"], found, strict=True):
            # A fused optimiser takes nothing else.
            param.grad = None if gradient is None else gradient.contiguous()
        optimiser.step()
        optimiser.zero_grad()
        if size.mixed:
            self._set_back(rows)

    def _set_back(self, rows: int) -> None:
        """Bring layers that a client does not train to where they began."""
        for layer, param, old in zip(self._layers, self._params, self._olds, strict=True):
            kept = (self._frozen[:rows] > layer).view(-1, *[1] * (param.ndim - 1))
            param[:rows].copy_(torch.where(kept, old[:rows], param[:rows]))

    def _captured(self, size: _Size, step: Callable[[], None]) -> Callable[[], None]:
        """Before weights are there: a capture makes steps of its own, with whatever lies in memory."""
        if size.batch_size not in self._index:
            shape = len(self._frozen), size.batch_size
            self._index[size.batch_size] = torch.zeros(shape, dtype=torch.int64, device=self._device)
        if size.rows not in self._optimisers:
            self._optimisers[size.rows] = self._optimiser(size.rows)
        if self._capture is None:
            return step
        self._index[size.batch_size].zero_()
        try:
            return self._capture(step)
        except CannotCapture as error:
            self._capture = None
            warnings.warn(f"training will be slow: {error}", stacklevel=2)
            return step

    def _begin(self, olds: Sequence[Weights], lr: float, mixed: bool) -> None:
        params = [param[: len(olds)] for param in self._params]
        fill(params, [old.params for old in olds])
        if mixed:
            for old, param in zip(self._olds, params, strict=True):
                old[: len(olds)].copy_(param)
        for names, vectors in (
            (self._floats, [old.buffers for old in olds]),
            (self._ints, [old.counters for old in olds]),
        ):
            fill([self._buffers[name][: len(olds)] for name in names], vectors)
        for tensors in self._state:
            for value in tensors.values():
                if isinstance(value, Tensor):
                    value.zero_()
        self._frozen.zero_()
        if self._lr is not None:
            self._lr.fill_(lr)
            return
        for optimiser in self._optimisers.values():
            optimiser.param_groups[0]["lr"] = lr

    def _updates(
        self, jobs: Sequence[Job], olds: Sequence[Weights], start: int, stop: int
    ) -> list[Update]:
        """What became of some rows, in memory of their own."""
        rows = torch.cat([param[start:stop].flatten(1).float() for param in self._params], 1)
        found = []
        for job, old, row in zip(jobs[start:stop], olds[start:stop], rows, strict=True):
            first = self._trainer.layout.start(job.depth)
            found.append(
                Update(
                    job.depth,
                    row[first.params :] - old.params[first.params :],
                    old.buffers[first.buffers :].clone(),
                    old.counters[first.counters :].clone(),
                    effort(self._settings, job.steps),
                )
            )
        return found

    def _plan(self, jobs: Sequence[Job], rows: int) -> tuple[Tensor, Tensor]:
        """Places of the samples of every step, row and batch, and how many of them are real."""
        steps, batch = jobs[0].steps, jobs[0].batch_size
        places = np.zeros((steps, rows, batch), dtype=np.int64)
        counts = np.ones((steps, rows), dtype=np.int64)
        for row, job in enumerate(jobs):
            for number, chosen in zip(range(job.steps), places_of(self._trainer, job), strict=False):
                places[number, row, : len(chosen)] = chosen
                counts[number, row] = len(chosen)
        return upload(torch.from_numpy(places), self._device), upload(
            torch.from_numpy(counts), self._device
        )

    def _new_state(self) -> list[dict[str, Any]]:
        """The optimiser's state for all rows, made by a step without gradients."""
        whole = client_optimiser(self._settings, self._params, self._settings.lr)
        for param in self._params:
            param.grad = torch.zeros_like(param)
        whole.step()
        whole.zero_grad()
        return [whole.state[param] for param in self._params]

    def _optimiser(self, rows: int) -> Optimizer:
        """Over the first rows of the parameters and of their state."""
        some = [param[:rows] for param in self._params]
        lr = self._settings.lr if self._lr is None else self._lr
        optimiser = client_optimiser(self._settings, some, lr)
        for part, param, state in zip(some, self._params, self._state, strict=True):
            optimiser.state[part] = {
                name: value[:rows]
                if isinstance(value, Tensor) and value.shape == param.shape
                else value
                for name, value in state.items()
            }
        return optimiser


def like_of(tensor: Tensor, rows: int) -> Tensor:
    """Zeros: as many of the tensor as there are rows."""
    return torch.zeros((rows, *tensor.shape), dtype=tensor.dtype, device=tensor.device)


def _alive(jobs: Sequence[Job]) -> list[int]:
    """How many of them are not done, by the number of the step; jobs with most steps come first."""
    return [sum(job.steps > number for job in jobs) for number in range(jobs[0].steps)]
