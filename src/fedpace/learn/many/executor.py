"""Executors: the protocol of all that train jobs, and the simplest of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import torch

from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.train.trainer import Job, Trainer

Jobs = Sequence[tuple[Job, Weights]]
"""Jobs, each with the weights that it starts from."""

_CHUNKS_A_WORKER = 4


def single_thread() -> None:
    """Make torch use one thread in this process: sums depend on how they are split up."""
    torch.set_num_threads(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """`single_thread` for a while; the caller gets its threads back."""
    before = torch.get_num_threads()
    single_thread()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(slots=True, eq=False)
class JobBatch:
    """Jobs that one worker trains in one go.

    places: their numbers among the jobs that were begun with it; answer: their updates in their order,
    or what went wrong; None: they are not done yet.
    """

    jobs: Jobs
    places: Sequence[int]
    answer: list[Update] | Exception | None = None

    @property
    def tasks(self) -> list[int]:
        return [job.task for job, _ in self.jobs]


class Executor(ABC):
    """Trains jobs, each from its own weights; it may do so while its caller goes on.

    appetite: number of jobs below which it cannot use all that it has; divisible: few jobs take as
    long a job as many; device: where updates lie when they come back.
    """

    divisible: bool = False
    device: str = "cpu"

    @property
    @abstractmethod
    def appetite(self) -> int: ...

    @abstractmethod
    def begin(self, needed: Jobs, others: Jobs) -> list[JobBatch]:
        """Begin with jobs that somebody will wait for, and with others for which nobody does yet."""

    @abstractmethod
    def finish(self, batches: Sequence[JobBatch]) -> list[list[Update]]:
        """Wait until batches are done: the updates of each. Raises what went wrong in one of them."""

    def train(self, jobs: Jobs) -> list[Update]:
        """Train jobs and wait for them; updates come back in the order of the jobs."""
        batches = self.begin(jobs, ())
        found: dict[int, Update] = {}
        for batch, updates in zip(batches, self.finish(batches), strict=True):
            found |= zip(batch.places, updates, strict=True)
        return [found[place] for place in range(len(jobs))]

    @abstractmethod
    def close(self) -> None:
        """End all workers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


class InlineExecutor(Executor):
    """An executor without a background: all is done when `begin` comes back."""

    @abstractmethod
    def train(self, jobs: Jobs) -> list[Update]: ...

    def begin(self, needed: Jobs, others: Jobs) -> list[JobBatch]:
        jobs = [*needed, *others]
        return [JobBatch(jobs, range(len(jobs)), self.train(jobs))]

    def finish(self, batches: Sequence[JobBatch]) -> list[list[Update]]:
        return answers_of(batches)

    def close(self) -> None:
        pass


class SerialExecutor(InlineExecutor):
    """Trains one job after the other in this process; updates stay on the trainer's device."""

    appetite = 1

    def __init__(self, trainer: Trainer) -> None:
        self._trainer, self.device = trainer, trainer.device

    def train(self, jobs: Jobs) -> list[Update]:
        return [self._trainer.run(job, weights) for job, weights in jobs]


def answers_of(batches: Sequence[JobBatch]) -> list[list[Update]]:
    """The updates of batches that are done, or the first thing that went wrong."""
    for one in batches:
        if isinstance(one.answer, Exception):
            raise one.answer
    return [one.answer for one in batches if isinstance(one.answer, list)]


def chunks_of(jobs: Sequence[Job], workers: int, appetite: int) -> list[list[int]]:
    """Indices of jobs in groups of about equal steps, the longest group first.

    Several for each worker, so that none waits long for another, but each of two fills at least.
    """
    fills = len(jobs) // (2 * appetite) if appetite > workers else -(-len(jobs) // appetite)
    most = workers * min(max(fills, 1), _CHUNKS_A_WORKER)
    groups: list[list[int]] = [[] for _ in range(min(most, len(jobs)))]
    loads = [0] * len(groups)
    for index in sorted(range(len(jobs)), key=lambda i: -jobs[i].result.steps):
        lightest = loads.index(min(loads))
        groups[lightest].append(index)
        loads[lightest] += jobs[index].result.steps
    order = sorted(range(len(groups)), key=lambda g: -loads[g])
    return [groups[g] for g in order]


def chunks_by_need(needed: int, others: int, workers: int, divisible: bool) -> list[list[int]]:
    """Numbers of jobs, those that are waited for first, in one group a worker.

    More groups let whoever waits go on sooner, but smaller stacks cost more than that gains. So only
    divisible jobs are in two groups a worker: those that are waited for, and the others behind them.
    """
    if not divisible:
        return chunks_in_order(needed + others, workers)
    behind = [[needed + at for at in chunk] for chunk in chunks_in_order(others, workers)]
    return chunks_in_order(needed, workers) + behind


def chunks_in_order(jobs: int, workers: int) -> list[list[int]]:
    """Numbers of jobs in one group a worker."""
    size = -(-jobs // workers)
    cuts = [min(size * at, jobs) for at in range(workers + 1)]
    return [list(range(start, stop)) for start, stop in pairwise(cuts) if start < stop]
