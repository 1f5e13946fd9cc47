"""The model server: models, the weights that open tasks started from, and updates until they are used.

The same for both clocks, which differ in where updates come from. A task is `opened` (its client has
the slot's current weights), its update is `expect`ed once its result is known, and it ends in one
`aggregate` or in `forget`. While a journal is retraced nothing is learned: who holds what follows from
the messages, and the tensors are those of a snapshot.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from msgspec.structs import replace

from fedpace.core.commands import GLOBAL, Aggregate, Blend, Measure, Probe, Train, Work
from fedpace.core.errors import Diverged
from fedpace.core.evaluation.metric import LOSS_NAME
from fedpace.core.events import Arrived
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.server.checks import UpdateNorms
from fedpace.learn.server.combine import find_combiner
from fedpace.learn.server.history.last_updates import UpdateOrigin
from fedpace.learn.server.store import ModelStore


@dataclass(eq=False)
class BaseWeights:
    """One version of a slot's weights, for as long as the update of a task that has them may be used.

    weights: None while a journal is retraced; number: counts the bases of a run; bad: it was rolled
    back, and updates from it are left out.
    """

    slot: str
    version: int
    weights: Weights | None
    number: int = 0
    bad: bool = False

    def known(self) -> Weights:
        if self.weights is None:
            raise RuntimeError(f"version {self.version} of {self.slot} is used while it is retraced")
        return self.weights


@dataclass(frozen=True, eq=False)
class ModelPoint:
    """All slots as they were at a version of the global model. bases: made by then.

    states: None while a journal is retraced.
    """

    version: int
    bases: int
    states: dict[str, Any] | None


class UpdateSource(Protocol):
    """Where updates come from: training that was put off, or files that clients have sent.

    opened: a task starts from these weights (told again when they become known); collect: the updates
    of expected tasks, others may be among them; collect_begun: of all tasks that are being trained;
    forget: the task needs nothing more, whether it was known or not. trains: updates are trained here,
    and no client has sent them. vet: remember a client's update by its norms, and refuse it by a
    PeerError where it is too large for one of `members` (None: it is used whatever it is); state, load:
    of what is remembered so.
    """

    trains: bool

    def opened(self, task: int, base: BaseWeights) -> None: ...
    def expect(self, event: Arrived, work: Work, base: BaseWeights) -> None: ...
    def collect(self, tasks: Iterable[int]) -> Iterable[tuple[int, Update]]: ...
    def collect_begun(self) -> Iterable[tuple[int, Update]]: ...
    def vet(self, task: int, client: int, norms: UpdateNorms, members: int | None) -> None: ...
    def state(self) -> Any: ...
    def load(self, state: Any) -> None: ...
    def forget(self, task: int) -> None: ...


class Recall(Protocol):
    """Numbers that an earlier run of the same journal measured, in their order."""

    def evaluated(self) -> dict[str, float]: ...
    def clients_evaluated(self) -> Sequence[float | None]: ...
    def measured(self) -> tuple[float | None, ...]: ...


class ModelServer:
    """Models, tasks and updates of one run; see above.

    guarded: a step to numbers that are not finite is not taken, and models can be rolled back to a
    point at which they were proved good.
    """

    def __init__(
        self,
        store: ModelStore,
        source: UpdateSource,
        test_clients: Callable[[Weights], Sequence[float]] | None = None,
        guarded: bool = False,
    ) -> None:
        """test_clients: the main metric of weights for each client; None where that is not asked."""
        self._test_clients = test_clients
        self._store = store
        self._source = source
        self._guarded = guarded
        self._numbers = 0
        self._good: ModelPoint | None = None
        if guarded:
            self._good = ModelPoint(0, 0, store.slot_states())
        self._candidate: ModelPoint | None = None
        """The point after the good one; it takes its place when members have proved it."""
        self.kept_out = False
        """Whether the last step was not taken."""
        self._recall: Recall | None = None
        self._bases: dict[int, BaseWeights] = {}
        self._began: dict[int, tuple[int, int]] = {}
        """Task -> its client, and the global model's steps until then."""
        self._steps = 0
        self._current: WeakValueDictionary[str, BaseWeights] = WeakValueDictionary()
        """Slot -> the latest version that a task has started from, as long as one needs it."""
        self._score: tuple[Weights, dict[str, float]] | None = None

    # Told by the world

    def opened(self, command: Probe | Train) -> None:
        """A task starts from its slot's current weights."""
        slot, version = command.slot, command.version
        base = self._current.get(slot)
        if base is None or base.version != version:
            weights = None if self.retracing else self._store.weights(slot)
            self._numbers += 1
            base = self._current[slot] = BaseWeights(slot, version, weights, self._numbers)
        self._bases[command.task] = base
        self._began[command.task] = command.client, self._steps
        self._source.opened(command.task, base)

    def expect(self, event: Arrived, work: Work) -> None:
        """The result of a task is known: its update may be needed from now on.

        What is here of an earlier report, which nobody else heard of, is replaced.
        """
        if not self.retracing:
            self._store.discard(event.task)
        self._source.expect(event, work, self._bases[event.task])

    def collect(self, tasks: Iterable[int]) -> None:
        """Have the updates of expected tasks here, checked; PeerError says what is wrong with one."""
        if not self.retracing:
            self._put(self._source.collect(tasks))

    def forget(self, task: int) -> None:
        """Nothing of a task is needed any more; one that is unknown is fine."""
        self._close(task)
        if not self.retracing:
            self._store.discard(task)

    def aggregate(self, command: Aggregate) -> None:
        self.kept_out = False
        if not self.retracing:
            self.collect(command.tasks)
            self._aggregate(self._without_bad(command))
        self._steps += command.slot == GLOBAL and bool(command.tasks)
        for task in command.tasks:
            self._close(task)

    def blend(self, command: Blend) -> None:
        if not self.retracing:
            self._store.blend(command)

    # Models that went bad

    def vet(self, task: int, client: int, members: int | None) -> None:
        """Hold an update against those of other clients, if it is here; see `UpdateSource`."""
        if not self.retracing and self._store.has(task):
            norms = self._store.norms(task, self._bases[task].known())
            self._source.vet(task, client, norms, members)

    def is_bad(self, task: int) -> bool:
        """Tell if a task started from a model that has been rolled back since."""
        base = self._bases.get(task)
        return base is not None and base.bad

    def prove(self, now: int) -> None:
        """Take the last point for good, and make one of how models are. now: the global version."""
        if self._good is None:
            return
        self._good = self._candidate or self._good
        states = None if self.retracing else self._store.slot_states()
        self._candidate = ModelPoint(now, self._numbers, states)

    def roll_back(self) -> int:
        """Bring all slots back to where they were last proved good; the version that they had there.

        What was trained from later ones is left out of aggregation from now on.
        """
        if self._good is None:
            raise RuntimeError("models that are not guarded cannot be rolled back")
        if not self.retracing:
            self._store.restore(self._good.states or {})
        for base in self._bases.values():
            if base.slot == GLOBAL:
                later = base.version > self._good.version
            else:
                later = base.number > self._good.bases
            base.bad = base.bad or later
        self._current.clear()
        self._candidate = None
        return self._good.version

    def _aggregate(self, command: Aggregate) -> None:
        before = self._store.slot_state(command.slot) if self._guarded and command.tasks else None
        mixed = command.tasks if find_combiner(command.rule).lags else ()
        try:
            bases = [self._bases[task].known() for task in mixed]
            known = [task for task in command.tasks if task in self._began]  # it complains of others
            self._store.aggregate(command, bases, [self._origin(task) for task in known])
        except Diverged:
            if before is None:
                raise
            self._store.restore({command.slot: before})
            for task in command.tasks:
                self._store.discard(task)
            self.kept_out = True

    def _without_bad(self, command: Aggregate) -> Aggregate:
        """The command without updates of models that were rolled back."""
        bad = [task for task in command.tasks if self.is_bad(task)]
        if not bad:
            return command
        for task in bad:
            self._store.discard(task)
        each = zip(command.tasks, command.weights, strict=True)
        kept = {task: weight for task, weight in each if task not in bad}
        return replace(command, tasks=tuple(kept), weights=tuple(kept.values()))

    def measure(self, command: Measure) -> tuple[float | None, ...]:
        if self._recall is not None:
            return self._recall.measured()
        self.collect(command.tasks)
        if self._source.trains:
            self._store.check_converge(command.tasks)
        return self._store.measure(command)

    def evaluate(self, slot: str) -> tuple[float | None, ...]:
        """The main metric and the loss, for the policy."""
        if self._recall is not None:
            return self._recall.measured()
        scores = self._evaluate(slot)
        return next(iter(scores.values())), scores[LOSS_NAME]

    # Told by the run

    def score(self) -> dict[str, float]:
        """Metrics of the global model by name, for the journal."""
        return self._evaluate(GLOBAL) if self._recall is None else self._recall.evaluated()

    def score_clients(self) -> Sequence[float | None]:
        """The main metric of the global model for each client, on samples of its own."""
        if self._recall is not None:
            return self._recall.clients_evaluated()
        if self._test_clients is None:
            raise RuntimeError("clients are tested, but no samples of theirs are here")
        return self._test_clients(self._store.served(GLOBAL))

    def weights(self) -> Weights:
        """The global model as it is tested and saved."""
        return self._store.served(GLOBAL)

    # Snapshots

    @property
    def tasks(self) -> Collection[int]:
        """Tasks that are open, or whose updates are still to be used."""
        return self._bases.keys()

    @property
    def retracing(self) -> bool:
        return self._recall is not None

    def retrace(self, recall: Recall) -> None:
        """Learn nothing until `load`: a journal is retraced up to a snapshot."""
        self._recall = recall

    def state(self) -> dict[str, Any]:
        """All tensors as plain values; who holds what follows from the journal."""
        self._put(self._source.collect_begun())
        bases = [(base, base.known()) for base in dict.fromkeys(self._bases.values()) if not base.bad]
        points = [one for one in (self._good, self._candidate) if one is not None]
        return {
            "store": self._store.state(),
            "source": self._source.state(),
            "points": [[point.version, point.states] for point in points],
            "weights": [
                [base.slot, base.version, one.params.cpu(), one.buffers.cpu(), one.counters.cpu()]
                for base, one in bases
            ],
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over the tensors of a snapshot, after retracing up to it."""
        self._recall = None
        self._store.load(state["store"])
        known = {
            (slot, version): Weights(*vectors).on(self._store.device)
            for slot, version, *vectors in state["weights"]
        }
        if "source" in state:
            self._source.load(state["source"])
        points, now = dict(state.get("points", ())), self._store.slot_states()
        self._good, self._candidate = (
            one and ModelPoint(one.version, one.bases, points.get(one.version) or now)
            for one in (self._good, self._candidate)
        )
        for task, base in self._bases.items():
            base.weights = (
                self._store.weights(base.slot) if base.bad else known[base.slot, base.version]
            )
            if self._store.has(task):
                self._source.forget(task)
            else:
                self._source.opened(task, base)

    # Inside

    def _put(self, updates: Iterable[tuple[int, Update]]) -> None:
        for task, update in updates:
            self._store.put(task, update, trained_here=self._source.trains)

    def _origin(self, task: int) -> UpdateOrigin:
        client, steps = self._began[task]
        return UpdateOrigin(client, self._steps - steps + 1)

    def _close(self, task: int) -> None:
        self._bases.pop(task, None)
        self._began.pop(task, None)
        self._source.forget(task)

    def _evaluate(self, slot: str) -> dict[str, float]:
        weights = self._store.served(slot)
        if self._score is None or self._score[0] is not weights:
            self._score = weights, self._store.evaluate(slot)
        return self._score[1]
