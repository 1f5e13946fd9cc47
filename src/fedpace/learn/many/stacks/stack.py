"""Models of several jobs as one: every tensor has the jobs as its first axis."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from fedpace.learn.model.layers import Bound
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.train.trainer import Job, Trainer

IGNORED = -100
"""A target that torch's cross entropy leaves out of the mean."""


class Stack:
    """The weights of `olds`, which are not changed; equal ones may be the same object.

    params: those of all layers, input first, each [jobs, ...]; buffers: likewise, by name.
    """

    def __init__(self, bound: Bound, olds: Sequence[Weights]) -> None:
        self._layout = layout = bound.layout
        self._olds = olds
        own = dict(bound.model.named_buffers())
        floats = [name for layer in layout.layers for name in layer.buffers]
        ints = [name for layer in layout.layers for name in layer.counters]
        self.params = [self._empty(param) for param in bound.params(layout.depth)]
        self.buffers = {name: self._empty(own[name]) for name in (*floats, *ints)}
        fill(self.params, [old.params for old in olds])
        fill([self.buffers[name] for name in floats], [old.buffers for old in olds])
        fill([self.buffers[name] for name in ints], [old.counters for old in olds])

    def first(self, depth: int) -> int:
        """Where in `params` the last `depth` layers begin."""
        return sum(len(layer.params) for layer in self._layout.layers[: self._layout.depth - depth])

    def restore(self, depth: int) -> None:
        """Bring all but the last `depth` layers back to where they began."""
        fill(self.params[: self.first(depth)], [old.params for old in self._olds])

    def updates(self, depth: int, efforts: Sequence[float]) -> list[Update]:
        """What became of each job, in memory of its own."""
        start = self._layout.start(depth)
        last = [param.flatten(1).float() for param in self.params[self.first(depth) :]]
        return [
            Update(
                depth,
                new - old.params[start.params :],
                old.buffers[start.buffers :].clone(),
                old.counters[start.counters :].clone(),
                effort,
            )
            for new, old, effort in zip(torch.cat(last, 1), self._olds, efforts, strict=True)
        ]

    def _empty(self, like: Tensor) -> Tensor:
        return torch.empty((len(self._olds), *like.shape), dtype=like.dtype, device=like.device)


def fill(stacks: Sequence[Tensor], vectors: Sequence[Tensor]) -> None:
    """Cut each vector into the shapes of the stacks, and put it into its row.

    Rows of one vector that follow each other are filled at once.
    """
    if not stacks:
        return
    first = 0
    for _, same in groupby(vectors, key=id):
        equal = list(same)
        last, start = first + len(equal), 0
        for stack in stacks:
            stop = start + stack[0].numel()
            stack[first:last].copy_(equal[0][start:stop].view(stack.shape[1:]))
            start = stop
        first = last


def alike_together(jobs: Sequence[tuple[Job, Weights]]) -> list[int]:
    """Numbers of the jobs, those with most steps first; among equals, those of one version together."""
    versions = {id(weights): number for number, (_, weights) in reversed(list(enumerate(jobs)))}
    return sorted(
        range(len(jobs)), key=lambda number: (-jobs[number][0].steps, versions[id(jobs[number][1])])
    )


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One batch for each of some jobs: [jobs, samples, ...]. rows: which jobs, None for all."""

    inputs: Tensor
    targets: Tensor
    rows: Tensor | None = None


class Batches:
    """The batches of several jobs, step by step, as each would draw them alone.

    padded: short ones are filled up with samples that have the target IGNORED, always to the jobs'
    batch size, so that no sum depends on the others in the stack. Otherwise batches of the same size
    come together.
    """

    def __init__(self, trainer: Trainer, jobs: Sequence[Job], padded: bool) -> None:
        self._gather = trainer.gather
        self._places = [places_of(trainer, job) for job in jobs]
        self._fill_to = jobs[0].batch_size if padded else 0

    def next(self, alive: int) -> list[Batch]:
        """The next batch of each of the first `alive` jobs."""
        places = [next(one) for one in self._places[:alive]]
        sizes = np.array([len(one) for one in places])
        if (sizes == max(self._fill_to, sizes[0])).all():
            return [self._gathered(np.stack(places))]
        if self._fill_to:
            return [self._filled(places, sizes)]
        found = []
        for size in np.unique(sizes):
            rows = np.flatnonzero(sizes == size)
            found.append(self._gathered(np.stack([places[row] for row in rows]), rows))
        return found

    def _gathered(self, places: np.ndarray, rows: np.ndarray | None = None) -> Batch:
        inputs, targets = (
            one.view(*places.shape, *one.shape[1:]) for one in self._gather(places.reshape(-1))
        )
        chosen = None if rows is None else torch.from_numpy(rows).to(inputs.device)
        return Batch(inputs, targets, chosen)

    def _filled(self, places: list[np.ndarray], sizes: np.ndarray) -> Batch:
        real = np.arange(self._fill_to) < sizes[:, None]
        filled = np.full(real.shape, places[0][0])
        filled[real] = np.concatenate(places)
        batch = self._gathered(filled)
        batch.targets[torch.from_numpy(~real).to(batch.targets.device)] = IGNORED
        return batch


def places_of(trainer: Trainer, job: Job) -> Iterator[np.ndarray]:
    """Batch after batch, without end, of places in the task's samples."""
    for order in trainer.epochs(job.client, job.task, trainer.samples(job)):
        for at in range(0, max(len(order), 1), job.batch_size):
            yield order[at : at + job.batch_size]
