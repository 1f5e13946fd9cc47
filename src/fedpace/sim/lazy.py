"""Lazy training: a task is trained when its result is needed, together with what else is pending.

Until then only its job is kept, and the weights that its client downloaded. Cancelled work is never
trained. When some results are needed, an executor that can do several jobs at once is topped up with
tasks under way, soonest due first; one with workers of its own goes on with those while the run goes on
with what it needed.
What is trained together depends on the run's events alone, and results do not depend on it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any

from fedpace.core.commands import Work
from fedpace.core.events import Arrived
from fedpace.learn.many.executor import Executor, JobBatch
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.server.checks import UpdateNorms
from fedpace.learn.server.model_server import BaseWeights
from fedpace.learn.train.trainer import Job


@dataclass(frozen=True, slots=True)
class _Pending:
    job: Job
    due: float
    base: BaseWeights


class LazyTraining:
    """The updates of simulated clients: a model server's source; see above."""

    trains = True

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._pending: dict[int, _Pending] = {}
        self._begun: dict[int, JobBatch] = {}
        """Tasks that are trained in the background, until their updates are collected."""

    def opened(self, task: int, base: BaseWeights) -> None:
        """Simulated clients fetch nothing."""

    def expect(self, event: Arrived, work: Work, base: BaseWeights) -> None:
        job = Job(event.client, event.task, event.version, work.batch_size, event.result, work.estimate)
        self._pending[event.task] = _Pending(job, event.at, base)

    def collect(self, tasks: Iterable[int]) -> Iterator[tuple[int, Update]]:
        """Train what is pending of these, and wait for it."""
        needed = list(tasks)
        chosen = [task for task in needed if task in self._pending]
        if chosen:
            more = self._soonest(self._executor.appetite - len(chosen), set(chosen))
            for batch in self._executor.begin(self._jobs(chosen), self._jobs(more)):
                self._begun |= dict.fromkeys(batch.tasks, batch)
        return self._finish(self._begun[task] for task in needed if task in self._begun)

    def collect_begun(self) -> Iterator[tuple[int, Update]]:
        return self._finish(self._begun.values())

    def vet(self, task: int, client: int, norms: UpdateNorms, members: int | None) -> None:
        """Simulated clients are ours."""

    def state(self) -> Any:
        return None

    def load(self, state: Any) -> None:
        """There is nothing beside what is pending, which follows from the journal."""

    def forget(self, task: int) -> None:
        self._pending.pop(task, None)
        self._begun.pop(task, None)

    def _soonest(self, most: int, but: set[int]) -> list[int]:
        """Pending tasks that are due next."""
        others = [task for task in self._pending if task not in but] if most > 0 else []
        return nsmallest(most, others, key=lambda task: self._pending[task].due)

    def _jobs(self, tasks: list[int]) -> list[tuple[Job, Weights]]:
        """Jobs of tasks that are pending no more, each with the weights that it starts from."""
        found = [self._pending.pop(task) for task in tasks]
        return [(one.job, one.base.known()) for one in found]

    def _finish(self, batches: Iterable[JobBatch]) -> Iterator[tuple[int, Update]]:
        """Wait for batches; the updates of all that came of them and is still wanted."""
        each = list(dict.fromkeys(batches))
        for batch, updates in zip(each, self._executor.finish(each), strict=True):
            for task, update in zip(batch.tasks, updates, strict=True):
                if self._begun.pop(task, None) is not None:  # it may have been forgotten
                    yield task, update
