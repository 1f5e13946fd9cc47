"""Models of several jobs as one: every tensor has the jobs as its first axis."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from fedpace.learn.many.executor import Jobs
from fedpace.learn.model.layers import BoundModel, VectorOffsets
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.samples.samples import Batch
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.optimiser import effort
from fedpace.learn.train.trainer import Job, Trainer
from fedpace.learn.tree import Tree, device_of, leaves, map_tree, shapes_of

IGNORED = -100
"""A target that torch's cross entropy leaves out of the mean."""


class Stack:
    """Models of `rows` jobs.

    params: those of all layers, input first, each [rows, ...]; buffers: likewise, by name.
    new: makes their memory, torch.empty or torch.zeros.
    """

    def __init__(self, bound: BoundModel, rows: int, new: Callable[..., Tensor] = torch.empty) -> None:
        def stacked(like: Tensor) -> Tensor:
            return new((rows, *like.shape), dtype=like.dtype, device=like.device)

        self._layout = layout = bound.layout
        own = dict(bound.model.named_buffers())
        self._floats = [name for layer in layout.layers for name in layer.buffers]
        self._ints = [name for layer in layout.layers for name in layer.counters]
        self.params = [stacked(param) for param in bound.params(layout.depth)]
        self.buffers = {name: stacked(own[name]) for name in (*self._floats, *self._ints)}

    @property
    def float_buffers(self) -> list[Tensor]:
        """Buffers that weights hold as float32, in their order."""
        return [self.buffers[name] for name in self._floats]

    @property
    def int_buffers(self) -> list[Tensor]:
        """Buffers that weights hold as int64."""
        return [self.buffers[name] for name in self._ints]

    def load(self, weights: Sequence[Weights]) -> None:
        """Fill the first rows; equal weights should be one object."""
        fill(self.params, [one.params for one in weights])
        fill(self.float_buffers, [one.buffers for one in weights])
        fill(self.int_buffers, [one.counters for one in weights])

    def restore(self, depth: int, olds: Sequence[Weights]) -> None:
        """Bring all but the last `depth` layers back to `olds`."""
        fill(self.params[: self._first(depth)], [old.params for old in olds])
        frozen = self._layout.layers[: self._layout.depth - depth]
        floats = [self.buffers[name] for layer in frozen for name in layer.buffers]
        ints = [self.buffers[name] for layer in frozen for name in layer.counters]
        fill(floats, [old.buffers for old in olds])
        fill(ints, [old.counters for old in olds])

    def first_rows(self, rows: int) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Views of parameters and buffers."""
        buffers = {name: value[:rows] for name, value in self.buffers.items()}
        return [param[:rows] for param in self.params], buffers

    def updates(self, jobs: Jobs, settings: TrainSettings, start: int = 0) -> list[Update]:
        """Updates of jobs whose rows begin at `start`, in memory of their own."""
        deepest, rows = max(job.result.depth for job, _ in jobs), slice(start, start + len(jobs))
        last = [param[rows].flatten(1).float() for param in self.params[self._first(deepest) :]]
        before, starts = self._layout.start(deepest), [self._start(job) for job, _ in jobs]
        each = zip(torch.cat(last, 1).unbind(), starts, jobs, strict=True)
        pairs = [
            (new[first.params - before.params :], old.params[first.params :])
            for new, first, (_, old) in each
        ]
        # In few launches on a GPU, each into memory of its own.
        params = torch._foreach_sub(*map(list, zip(*pairs, strict=True)))
        floats, ints = self._floats, self._ints
        buffers = self._copies(floats, rows, torch.float32, [first.buffers for first in starts])
        counters = self._copies(ints, rows, torch.int64, [first.counters for first in starts])
        found = zip(jobs, params, buffers, counters, strict=True)
        return [
            Update(job.result.depth, delta, own, counted, effort(settings, job.result.steps))
            for (job, _), delta, own, counted in found
        ]

    def _copies(
        self, names: Sequence[str], rows: slice, kind: torch.dtype, firsts: Sequence[int]
    ) -> list[Tensor]:
        """Buffers of each of some rows as a vector, from a place on."""
        if not names:
            return [torch.empty(0, dtype=kind, device=self.params[0].device)] * len(firsts)
        each = (self.buffers[name][rows].to(kind) for name in names)
        flat = torch.cat([one.reshape(len(one), -1) for one in each], 1)
        chosen = [row[first:] for row, first in zip(flat.unbind(), firsts, strict=True)]
        found = [torch.empty_like(one) for one in chosen]
        torch._foreach_copy_(found, chosen)
        return found

    def _start(self, job: Job) -> VectorOffsets:
        """Places where the layers begin that a job trains."""
        return self._layout.start(job.result.depth)

    def _first(self, depth: int) -> int:
        """Place in `params` where the last `depth` layers begin."""
        return sum(len(layer.params) for layer in self._layout.layers[: self._layout.depth - depth])


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


@dataclass(frozen=True, slots=True, eq=False)
class StackBatch:
    """One batch for each of some jobs: [jobs, samples, ...]. rows: which jobs, None for all.

    real: which samples count [jobs, samples], the others fill up behind them, None: all count; frozen:
    how many layers each job does not train [jobs], None: those that the part of the model does not.
    """

    inputs: Tree
    targets: Tree
    rows: Tensor | None = None
    real: Tensor | None = None
    frozen: Tensor | None = None

    @property
    def samples(self) -> int:
        """Samples of each job."""
        count: int = next(leaves(self.inputs)).shape[1]
        return count


class StackBatches:
    """The batches of several jobs, step by step, as each would draw them alone.

    ignored: short ones are filled up with samples that have this target, always to the jobs' batch
    size, so that no sum depends on the others in the stack. None: batches of the same size come
    together; those that a user's function puts together, where they have the same shapes.
    """

    def __init__(self, trainer: Trainer, jobs: Sequence[Job], ignored: int | None) -> None:
        self._gather, self._uniform = trainer.gather, trainer.task.train.uniform
        self._places = list(map(iter, places_of(trainer, jobs)))
        self._ignored, self._fill_to = ignored, 0 if ignored is None else jobs[0].batch_size

    def next(self, alive: int) -> list[StackBatch]:
        """The next batch of each of the first `alive` jobs."""
        places = [next(one) for one in self._places[:alive]]
        if not self._uniform:
            return _by_shape([self._gather(one) for one in places])
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

    def _gathered(self, places: np.ndarray, rows: np.ndarray | None = None) -> StackBatch:
        inputs, targets = map_tree(
            lambda one: one.view(*places.shape, *one.shape[1:]), self._gather(places.reshape(-1))
        )
        chosen = None if rows is None else torch.from_numpy(rows).to(device_of(inputs))
        return StackBatch(inputs, targets, chosen)

    def _filled(self, places: list[np.ndarray], sizes: np.ndarray) -> StackBatch:
        real = np.arange(self._fill_to) < sizes[:, None]
        filled = np.full(real.shape, places[0][0])
        filled[real] = np.concatenate(places)
        batch = self._gathered(filled)
        counted = torch.from_numpy(real).to(batch.targets.device)
        batch.targets[~counted] = self._ignored
        return replace(batch, real=counted)


def _by_shape(batches: Sequence[Batch]) -> list[StackBatch]:
    """Batches of the jobs 0, 1, ..., stacked where they have the same shapes."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for job, batch in enumerate(batches):
        groups[shapes_of(batch)].append(job)
    found = []
    for rows in groups.values():
        inputs, targets = map_tree(lambda *each: torch.stack(each), *(batches[row] for row in rows))
        every = len(rows) == len(batches)
        chosen = None if every else torch.tensor(rows, device=device_of(inputs))
        found.append(StackBatch(inputs, targets, chosen))
    return found


def places_of(trainer: Trainer, jobs: Sequence[Job]) -> list[list[np.ndarray]]:
    """Places of the samples of each job's batches, one after the other."""
    found = []
    for job, orders in zip(jobs, trainer.orders(jobs), strict=True):
        size = job.batch_size
        each = [one[at : at + size] for one in orders for at in range(0, max(len(one), 1), size)]
        found.append(each[: job.result.steps])
    return found
