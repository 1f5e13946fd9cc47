"""One pass over a journal, into tables from which its timeline is made.

Every row knows its place in the journal (`line`), since many things happen at one time. What a message
led to is kept as its trigger: the last event before a command says why the command was given.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fedpace.core.codec import Message
from fedpace.core.commands import (
    GLOBAL,
    Aggregate,
    Blend,
    Cancel,
    CancelTimer,
    Drop,
    Measure,
    Probe,
    SetTimer,
    Train,
)
from fedpace.core.errors import JournalError
from fedpace.core.events import Arrived, Failed, Joined, Left, Measured, Profiled, Started, Timer
from fedpace.core.facts import (
    Changed,
    ClientsEvaluated,
    Closed,
    Evaluated,
    Finished,
    Ignored,
    KeptOut,
    RolledBack,
    Spent,
)
from fedpace.report.timeline.phases import Fate
from fedpace.report.timeline.tables import RecordTable

NAN = math.nan
GROUP_TIMER = "group "
"""How FedCompass's timers begin; a group is as old as its timer."""
STARTED, ARRIVED, FAILED, PROFILED, TIMER, JOINED, LEFT = range(7)


Trigger = tuple[int, int]
"""Why something was done: an event's kind, and its task's row, timer's row or client."""


class JournalTables:
    """What a timeline needs of a journal. `write` takes its messages in their order.

    metric: the main one, whose tests are kept; None: there is none.
    """

    def __init__(self, metric: str | None = None) -> None:
        self.now = self._told_s = 0.0
        self.line = 0
        self.clients = 0
        """One more than the largest number of a client."""
        self.slots: dict[str, int] = {GLOBAL: 0}
        self.reasons: dict[str, int] = {"": 0}
        self.presence = RecordTable(line="q", at="d", client="i", online="B", samples="q")
        self.opened = RecordTable(
            line="q", at="d", client="i", number="q", version="q", kind="B", trigger="q", probe="B",
            go_on="B", batch_size="q", epochs="q", steps="q", depth="i", width="d", stop_at="d",
        )  # fmt: skip
        self.given = RecordTable(
            task="q", at="d", kind="B", trigger="q", epochs="q", steps="q", depth="i", stop_at="d"
        )
        self.profiled = RecordTable(
            task="q", at="d", batch_s="d", batches="q", down_s="d", up_s="d", latency_s="d"
        )
        self.arrived = RecordTable(
            task="q", line="q", at="d", up_bytes="q", batch_s="d", batches="q", down_s="d", up_s="d",
            latency_s="d", depth="i", steps="q", samples="q", trained="q",
        )  # fmt: skip
        self.ended = RecordTable(task="q", line="q", at="d", fate="B", reason="i")
        self.used = RecordTable(task="q", line="q", staleness="i", round="i")
        """Also updates that were dropped: of round -1."""
        self.timers = RecordTable(name="i", set_at="d", kind="B", trigger="q")
        self.aggregations = RecordTable(line="q", at="d", slot="i", updates="i")
        self.rounds = RecordTable(line="q", at="d", kind="B", trigger="q", updates="i", group_at="d")
        self.tests = RecordTable(at="d", value="d")
        self.undone: list[tuple[int, int]] = []
        """First and last round of each stretch whose models count for nothing."""
        self.arrivals_answered = self.arrivals_left = 0
        """Arrivals that led to a new task but to no aggregation, and to neither."""
        self.grouped = False
        """The policy has timers of groups, or models of tiers."""
        self._metric = metric
        self._trigger: Trigger = (STARTED, -1)
        self._tasks = 0
        self._open: dict[int, tuple[int, int, str, int]] = {}
        self._updates: dict[int, tuple[int, int, str, int]] = {}
        """Task -> row, client, slot and version, of tasks that are open and of updates that wait."""
        self._versions: dict[str, int] = {}
        self._gone_into: dict[str, list[tuple[int, int]]] = {}
        """Slot -> row and staleness of updates that it has taken up and not passed on."""
        self._set: dict[str, tuple[float, Trigger]] = {}
        self._asked: dict[int, Trigger] = {}
        self._group_at = NAN
        self._answer = 0
        """What the answer to the last arrival has been so far: 1 a task, 2 an aggregation."""
        self._after_arrival = False

    def write(self, message: Message) -> None:
        """Take the next message of the journal."""
        self.line += 1
        enter = _ENTRIES.get(type(message))
        if enter is not None:
            enter(self, message)

    def write_all(self, messages: Iterable[Message]) -> None:
        """Take the next messages of the journal, which is quicker than one by one."""
        find = _ENTRIES.get
        for message in messages:
            self.line += 1
            enter = find(type(message))
            if enter is not None:
                enter(self, message)

    @property
    def length_s(self) -> float:
        """The latest time that anything named."""
        return max(self.now, self._told_s)

    # Events

    def _hear(self, at: float, kind: int, row: int) -> None:
        if not at >= self.now:
            raise self._error(f"time {at} comes after time {self.now}; events must be in order")
        if self._after_arrival:
            self.settle()
        self.now = at
        self._trigger = (kind, row)
        self._group_at, self._answer = NAN, 0

    def settle(self) -> None:
        """Count how the last arrival was answered."""
        if self._after_arrival and self._answer != 2:
            if self._answer == 1:
                self.arrivals_answered += 1
            else:
                self.arrivals_left += 1
        self._after_arrival = False

    def _started(self, event: Started) -> None:
        self._hear(event.at, STARTED, -1)

    def _joined(self, event: Joined) -> None:
        self._hear(event.at, JOINED, event.client)
        self.clients = max(self.clients, event.client + 1)
        self.presence.add(self.line, event.at, event.client, 1, event.samples)

    def _left(self, event: Left) -> None:
        self._hear(event.at, LEFT, event.client)
        self.presence.add(self.line, event.at, event.client, 0, 0)

    def _profiled(self, event: Profiled) -> None:
        row, rates = self._row(event.task, event.client), event.rates
        self._hear(event.at, PROFILED, row)
        self.profiled.add(
            row, event.at, rates.batch_s, rates.batches, rates.down_s, rates.up_s, rates.latency_s
        )

    def _arrived(self, event: Arrived) -> None:
        task, at, rates, result = event.task, event.at, event.rates, event.result
        found, table = self._open.pop(task, None), self.arrived
        if found is None or found[1] != event.client:
            raise self._ends_unopened(task, event.client)
        self._updates[task], row = found, found[0]
        self._hear(at, ARRIVED, row)
        self._after_arrival = True
        trained = result.samples if result.trained is None else result.trained
        table.put(table.pack(
            row, self.line, at, event.up_bytes, rates.batch_s, rates.batches, rates.down_s, rates.up_s,
            rates.latency_s, result.depth, result.steps, result.samples, trained,
        ))  # fmt: skip

    def _failed(self, event: Failed) -> None:
        row = self._row(event.task, event.client)
        self._hear(event.at, FAILED, row)
        self._end(event.task, row, event.at, _fate_of(event.reason), event.reason)

    def _timer(self, event: Timer) -> None:
        set_at, trigger = self._set.pop(event.name, (self.now, self._trigger))
        # A name such as "group 17" is one of many; what stays of it is what it was for.
        kind = self._index(self.reasons, event.name.rstrip("0123456789").rstrip())
        row = self.timers.add(kind, set_at, *trigger)
        self._hear(event.at, TIMER, row)
        if event.name.startswith(GROUP_TIMER):
            self._group_at = set_at

    def _measured(self, event: Measured) -> None:
        asked = self._asked.pop(event.request, self._trigger)
        self._hear(event.at, *asked)

    # Commands

    def _train(self, command: Train) -> None:
        task, work, open_ = command.task, command.work, self._open
        self._answer = self._answer or 1
        epochs, steps, depth = work.epochs or 0, work.steps or 0, work.depth or 0
        stop_at = NAN if work.stop_at is None else work.stop_at
        kind, trigger = self._trigger
        if task in open_:
            self.given.add(open_[task][0], self.now, kind, trigger, epochs, steps, depth, stop_at)
            return
        client, version, table = command.client, command.version, self.opened
        open_[task] = (self._tasks, client, command.slot, version)
        self._tasks += 1
        if client >= self.clients:
            self.clients = client + 1
        table.put(table.pack(
            self.line, self.now, client, task, version, kind, trigger, 0, 0, work.batch_size, epochs,
            steps, depth, 1.0 if work.width is None else work.width, stop_at,
        ))  # fmt: skip

    def _probe(self, command: Probe) -> None:
        client, task, version = command.client, command.task, command.version
        self._answer = self._answer or 1
        self._open[task] = (self._tasks, client, command.slot, version)
        self._tasks += 1
        self.clients = max(self.clients, client + 1)
        rest = 1, int(command.go_on), command.batch_size, 0, 0, 0, 1.0, NAN
        self.opened.add(self.line, self.now, client, task, version, *self._trigger, *rest)

    def _cancel(self, command: Cancel) -> None:
        row = self._row(command.task, command.client)
        fate = Fate.LATE if command.reason == "late" else Fate.CANCELLED
        self._end(command.task, row, self.now, fate, command.reason)

    def _drop(self, command: Drop) -> None:
        row, _, slot, version = self._take(command.task)
        self.used.add(row, self.line, self._versions.get(slot, 0) - version, -1)
        self._answer = 2

    def _aggregate(self, command: Aggregate) -> None:
        self._answer = 2
        updates, versions, take = list[tuple[int, int]](), self._versions, self._take
        for task in command.tasks:
            row, _, slot, version = take(task)
            updates.append((row, versions.get(slot, 0) - version))
        slot = command.slot
        self.aggregations.add(self.line, self.now, self._index(self.slots, slot), len(updates))
        self._next_version(slot, updates)

    def _blend(self, command: Blend) -> None:
        self._answer = 2
        updates = [one for slot in command.sources for one in self._gone_into.pop(slot, ())]
        self._next_version(command.slot, updates)

    def _next_version(self, slot: str, updates: list[tuple[int, int]]) -> None:
        version = self._versions[slot] = self._versions.get(slot, 0) + 1
        if slot != GLOBAL:
            self.grouped = True
            self._gone_into.setdefault(slot, []).extend(updates)
            for row, staleness in updates:  # its client waits no longer, whenever it is passed on
                self.used.add(row, self.line, staleness, 0)
            return
        put, pack = self.used.put, self.used.pack
        for row, staleness in updates:
            put(pack(row, self.line, staleness, version))
        self.rounds.add(self.line, self.now, *self._trigger, len(updates), self._group_at)

    def _set_timer(self, command: SetTimer) -> None:
        self._set[command.name] = (self.now, self._trigger)
        self.grouped = self.grouped or command.name.startswith(GROUP_TIMER)

    def _cancel_timer(self, command: CancelTimer) -> None:
        found = self._set.pop(command.name, None)
        if found is not None and command.name.startswith(GROUP_TIMER):
            self._group_at = found[0]

    def _measure(self, command: Measure) -> None:
        self._asked[command.request] = self._trigger
        self._answer = 2

    # Facts

    def _evaluated(self, fact: Evaluated) -> None:
        self._told_s = max(self._told_s, fact.at)
        if fact.slot == GLOBAL:
            value = fact.metrics.get(self._metric) if self._metric else None
            self.tests.add(fact.at, NAN if value is None else value)

    def _ended(self, fact: Closed) -> None:
        self._told_s = max(self._told_s, fact.at)
        row = self._row(fact.task, fact.client)
        self._end(fact.task, row, fact.at, Fate.OPEN, "")

    def _other(self, fact: Finished | ClientsEvaluated | Spent | Ignored | Changed) -> None:
        self._told_s = max(self._told_s, fact.at)

    def _rolled_back(self, fact: RolledBack) -> None:
        self.undone.append((fact.to + 1, fact.version))

    def _kept_out(self, fact: KeptOut) -> None:
        if fact.slot == GLOBAL:
            self.undone.append((fact.version, fact.version))

    # Inside

    def _row(self, task: int, client: int) -> int:
        found = self._open.get(task)
        if found is None or found[1] != client:
            raise self._ends_unopened(task, client)
        return found[0]

    def _take(self, task: int) -> tuple[int, int, str, int]:
        found = self._updates.pop(task, None)
        if found is None:
            raise self._error(f"the update of task {task} is used, but it never came or is used up")
        return found

    def _end(self, task: int, row: int, at: float, fate: Fate, reason: str) -> None:
        del self._open[task]
        self.ended.add(row, self.line, at, fate, self._index(self.reasons, reason))

    def _index(self, names: dict[str, int], name: str) -> int:
        return names.setdefault(name, len(names))

    def _ends_unopened(self, task: int, client: int) -> JournalError:
        return self._error(f"task {task} of client {client} ends, but no such task is open")

    def _error(self, problem: str) -> JournalError:
        return JournalError(f"line {self.line + 1}: {problem}; the journal is damaged or edited")


def _fate_of(reason: str) -> Fate:
    """What a failed task came to, by how its reason begins."""
    if reason.startswith("refused: "):
        return Fate.REFUSED
    if reason.startswith(("the client left", "the client dropped out")):
        return Fate.LEFT
    return Fate.LATE if reason.startswith("overdue: ") else Fate.FAILED


_ENTRIES: Mapping[type, Callable[[JournalTables, Any], object]] = {
    Arrived: JournalTables._arrived,
    Train: JournalTables._train,
    Probe: JournalTables._probe,
    Profiled: JournalTables._profiled,
    Timer: JournalTables._timer,
    Failed: JournalTables._failed,
    Joined: JournalTables._joined,
    Left: JournalTables._left,
    Measured: JournalTables._measured,
    Started: JournalTables._started,
    Cancel: JournalTables._cancel,
    Drop: JournalTables._drop,
    Aggregate: JournalTables._aggregate,
    Blend: JournalTables._blend,
    SetTimer: JournalTables._set_timer,
    CancelTimer: JournalTables._cancel_timer,
    Measure: JournalTables._measure,
    Evaluated: JournalTables._evaluated,
    Closed: JournalTables._ended,
    Finished: JournalTables._other,
    ClientsEvaluated: JournalTables._other,
    Spent: JournalTables._other,
    Ignored: JournalTables._other,
    Changed: JournalTables._other,
    RolledBack: JournalTables._rolled_back,
    KeptOut: JournalTables._kept_out,
}
"""Entries by kind of message; others tell a timeline nothing."""
