"""Counts of a served run, for metrics and status; none of its decisions look at them.

What a run writes into its journal goes through here, too, so that tasks and updates are counted as the
journal has them, and a server that goes on with a run goes on with its counts. Times of transfers and
calls are this process's. All sets of labels are bounded: who is refused is no label, why is one of a
few kinds.
"""

import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from fedpace.core.commands import Aggregate, Cancel, Command, Drop, Probe, Train
from fedpace.core.events import Arrived, Event, Failed
from fedpace.core.facts import Closed, Evaluated, Fact
from fedpace.net.monitor.histogram import Histogram
from fedpace.net.monitor.refusals import outcome_of, refusal_kind
from fedpace.net.pieces import Piece

PHASES = ("download", "compute", "upload", "wait")
"""A task's: until its client has the model, until its update begins to come, until that is reported,
and until it is used."""
DIRECTIONS = ("down", "up")


@dataclass(slots=True)
class _TaskTimes:
    """When a task was ordered, when its model was there, and when its update began to come."""

    ordered: float
    asked: float | None = None
    fetched: float | None = None
    uploading: float | None = None


@dataclass(frozen=True, slots=True)
class LastRefusal:
    """Why something of a client was refused last, and when, by the server's clock."""

    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class Counts:
    """All counts at one moment. phases: seconds of tasks by PHASES; tested: values by metric."""

    given: int
    outcomes: dict[str, int]
    used: int
    dropped: int
    phases: dict[str, Histogram]
    moved_bytes: dict[str, int]
    refused_reports: dict[str, int]
    refused_calls: dict[str, int]
    shut_out: int
    facts: dict[str, int]
    tested: dict[str, float]


class RunCounters:
    """Counts what the run writes down and what the server sees. Any thread may call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._given = self._used = self._dropped = self._shut_out = 0
        self._opened: set[int] = set()
        self._outcomes: Counter[str] = Counter()
        self._phases = {phase: Histogram.empty() for phase in PHASES}
        self._bytes: Counter[str] = Counter()
        self._refused_reports: Counter[str] = Counter()
        self._refused_calls: Counter[str] = Counter()
        self._facts: Counter[str] = Counter()
        self._tested: dict[str, float] = {}
        self._times: dict[int, _TaskTimes] = {}
        """Of open tasks that this process has ordered."""
        self._arrived_at: dict[int, float] = {}
        """Of updates that wait, by the run's clock."""
        self._run_s = 0.0
        self._last_refusals: dict[int, LastRefusal] = {}

    def counts(self) -> Counts:
        with self._lock:
            return Counts(
                self._given,
                dict(self._outcomes),
                self._used,
                self._dropped,
                dict(self._phases),
                dict(self._bytes),
                dict(self._refused_reports),
                dict(self._refused_calls),
                self._shut_out,
                dict(self._facts),
                self._tested,
            )

    def last_refusal(self, client: int) -> LastRefusal | None:
        return self._last_refusals.get(client)

    def phase_of(self, task: int) -> tuple[str, float] | None:
        """What an open task's client does with it, and since when; None: it was ordered before."""
        times = self._times.get(task)
        if times is None:
            return None
        if times.uploading is not None:
            return "upload", times.uploading
        if times.fetched is not None:
            return "compute", times.fetched
        return ("order", times.ordered) if times.asked is None else ("download", times.asked)

    # The run's journal

    def write(self, message: Event | Command | Fact) -> None:
        """Count a message of the run."""
        with self._lock:
            if isinstance(message, Event):
                self._run_s = message.at
            match message:
                case Probe(task=task) | Train(task=task):
                    self._given += task not in self._opened
                    self._opened.add(task)
                case Arrived(task=task):
                    self._arrived_at[task] = message.at
                    self._end(task, "arrived")
                case Failed(task=task, reason=reason):
                    self._end(task, outcome_of(reason))
                case Cancel(task=task):
                    self._end(task, "cancelled")
                case Closed(task=task):
                    self._end(task, "closed")
                case Aggregate(tasks=tasks):
                    self._used += len(tasks)
                    for task in tasks:
                        self._use(task)
                case Drop(task=task):
                    self._dropped += 1
                    self._arrived_at.pop(task, None)
                case Evaluated(metrics=metrics):
                    self._tested = dict(metrics)
            if isinstance(message, Fact):
                self._facts[type(message).__name__] += 1

    def _end(self, task: int, outcome: str) -> None:
        self._outcomes[outcome] += 1
        self._opened.discard(task)
        times, now = self._times.pop(task, None), self._clock()
        if outcome != "arrived" or times is None or times.fetched is None or times.uploading is None:
            return
        self._observe("download", times.fetched - times.ordered)
        self._observe("compute", times.uploading - times.fetched)
        self._observe("upload", now - times.uploading)

    def _use(self, task: int) -> None:
        arrived = self._arrived_at.pop(task, None)
        if arrived is not None:
            self._observe("wait", self._run_s - arrived)

    def _observe(self, phase: str, seconds: float) -> None:
        self._phases[phase] = self._phases[phase].plus(max(seconds, 0.0))

    # What the server sees

    def ordered(self, task: int) -> None:
        """Note that a client is told of a task; the first time counts."""
        with self._lock:
            self._times.setdefault(task, _TaskTimes(self._clock()))

    def downloading(self, task: int, size: int) -> None:
        """Count bytes of a model that go to a task's client; 0: it asks for them."""
        with self._lock:
            self._bytes["down"] += size
            times = self._times.get(task)
            if times is not None and times.asked is None:
                times.asked = self._clock()

    def downloaded(self, task: int) -> None:
        """Note that a task's client has its model."""
        with self._lock:
            times = self._times.get(task)
            if times is not None and times.fetched is None:
                times.fetched = self._clock()

    async def counted(self, pieces: AsyncIterator[Piece]) -> AsyncIterator[Piece]:
        """Pieces of an update as they come, counted."""
        async for piece in pieces:
            with self._lock:
                self._bytes["up"] += len(piece.data)
            yield piece

    def uploading(self, task: int) -> None:
        """Note that a task's update is offered, or comes."""
        with self._lock:
            times = self._times.get(task)
            if times is not None and times.uploading is None:
                times.uploading = self._clock()

    def refused_report(self, client: int, reason: str) -> None:
        """Note a report that was refused, or a task that was taken away."""
        with self._lock:
            self._last_refusals[client] = LastRefusal(reason, self._clock())
            kind = refusal_kind(reason)
            if kind is not None:
                self._refused_reports[kind] += 1

    def note_offence(self, client: int, reason: str) -> None:
        """Note what a client sent that is no message; as a call it is counted already."""
        with self._lock:
            self._last_refusals[client] = LastRefusal(reason, self._clock())

    def refused_call(self, kind: str) -> None:
        """Count a call, a client or a transfer that was turned away; kind: one of CALL_REFUSALS."""
        with self._lock:
            self._refused_calls[kind] += 1

    def shut_out(self, client: int, reason: str) -> None:
        """Note that a client is cut off for what it did."""
        with self._lock:
            self._shut_out += 1
            self._last_refusals[client] = LastRefusal(reason, self._clock())
