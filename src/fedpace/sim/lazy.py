"""Lazy training: a task is trained when its result is needed, together with what else is pending.

Until then only its job is kept, and the weights that its client downloaded, which stay until the
update is used: a mix needs them. Cancelled work is never trained. When some results are needed, an
executor that can do several jobs at once is topped up with tasks under way, soonest due first; one
with workers of its own goes on with those while the run goes on with what it needed.
What is trained together depends on the run's events alone, and results do not depend on it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Protocol

from fedpace.core.commands import GLOBAL, Aggregate, Blend, Measure, Work
from fedpace.core.events import Arrived
from fedpace.learn.many.executor import AtOnce, Background, Executor, Portion
from fedpace.learn.model.weights import Weights
from fedpace.learn.server.pins import Pin, Pins
from fedpace.learn.server.store import ModelStore
from fedpace.learn.train.trainer import Job


class Recall(Protocol):
    """Numbers that an earlier run of the same journal measured, in their order."""

    def evaluated(self) -> tuple[float, float | None]: ...
    def measured(self) -> tuple[float | None, ...]: ...


@dataclass(frozen=True, slots=True)
class _Pending:
    job: Job
    due: float


class LazyLearner:
    """Weights, updates and pending work of one run.

    recall: where given, nothing is learned: the run is being retraced up to a snapshot, and
    `load` ends that.
    """

    def __init__(self, store: ModelStore, executor: Executor, recall: Recall | None = None) -> None:
        self._store = store
        self._executor = executor if isinstance(executor, Background) else AtOnce(executor)
        self._recall = recall
        self._pins = Pins()
        self._pending: dict[int, _Pending] = {}
        self._begun: dict[int, Portion] = {}
        """Tasks that are trained in the background, until their updates are in the store."""
        self._score: tuple[Pin, tuple[float, float]] | None = None

    @property
    def retracing(self) -> bool:
        return self._recall is not None

    # Told by the world

    def opened(self, task: int, slot: str) -> None:
        self._pins.open(task, slot, self._store.weights(slot) if self._recall is None else None)

    def will_arrive(self, event: Arrived, work: Work) -> None:
        job = Job(
            event.client,
            event.task,
            event.steps,
            event.full_steps,
            event.depth,
            work.batch_size,
            version=event.version,
            last_depth=event.last_depth,
            width=event.width,
            estimate=work.estimate,
            seen=event.seen,
        )
        self._pending[event.task] = _Pending(job, event.at)

    def forget(self, task: int) -> None:
        self._pending.pop(task, None)
        self._begun.pop(task, None)
        self._pins.close(task)
        if self._recall is None:
            self._store.discard(task)

    def aggregate(self, command: Aggregate) -> None:
        if self._recall is None:
            self._train(command.tasks)
            mixed = command.tasks if command.rule == "mix" else ()
            self._store.aggregate(command, [self._pins.weights(task) for task in mixed])
        for task in command.tasks:
            self._pending.pop(task, None)
            self._pins.close(task)
        self._pins.advance(command.slot)

    def blend(self, command: Blend) -> None:
        if self._recall is None:
            self._store.blend(command)
        self._pins.advance(command.slot)

    def measure(self, command: Measure) -> tuple[float | None, ...]:
        if self._recall is not None:
            return self._recall.measured()
        self._train(command.tasks)
        return self._store.measure(command)

    def evaluate(self, slot: str) -> tuple[float | None, ...]:
        """Accuracy and loss, for the policy."""
        return self._evaluate(slot) if self._recall is None else self._recall.measured()

    # Told by the run

    def score(self) -> tuple[float, float | None]:
        """Accuracy and loss of the global model, for the journal."""
        return self._evaluate(GLOBAL) if self._recall is None else self._recall.evaluated()

    def state(self) -> dict[str, Any]:
        """All tensors of the run as plain values; jobs are not in it, retracing brings them back."""
        self._finish(self._begun.values())
        return {
            "store": self._store.state(),
            "weights": self._pins.weights_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over the tensors of a snapshot, after retracing up to it."""
        self._store.load(state["store"])
        self._pins.load_weights(state["weights"])
        self._recall = None
        for task in [task for task in self._pending if self._store.has(task)]:
            del self._pending[task]

    # Inside

    def _evaluate(self, slot: str) -> tuple[float, float]:
        pin = self._pins.current(slot)
        if self._score is None or self._score[0] != pin:
            self._score = (pin, self._store.evaluate(slot))
        return self._score[1]

    def _train(self, needed: tuple[int, ...]) -> None:
        """Have the updates of tasks in the store."""
        chosen = [task for task in needed if task in self._pending]
        if chosen:
            more = self._soonest(self._executor.appetite - len(chosen), set(chosen))
            for portion in self._executor.begin(self._jobs(chosen), self._jobs(more)):
                self._begun |= dict.fromkeys(portion.tasks, portion)
        self._finish(self._begun[task] for task in needed if task in self._begun)

    def _soonest(self, most: int, but: set[int]) -> list[int]:
        """Pending tasks that are due next."""
        others = [task for task in self._pending if task not in but] if most > 0 else []
        return nsmallest(most, others, key=lambda task: self._pending[task].due)

    def _jobs(self, tasks: list[int]) -> list[tuple[Job, Weights]]:
        """Jobs of tasks that are pending no more, each with the weights that it starts from."""
        return [(self._pending.pop(task).job, self._pins.weights(task)) for task in tasks]

    def _finish(self, portions: Iterable[Portion]) -> None:
        """Wait for portions, and put all that came of them into the store."""
        each = list(dict.fromkeys(portions))
        for portion, updates in zip(each, self._executor.finish(each), strict=True):
            for task, update in zip(portion.tasks, updates, strict=True):
                if self._begun.pop(task, None) is not None:  # it may have been forgotten
                    self._store.put(task, update)
