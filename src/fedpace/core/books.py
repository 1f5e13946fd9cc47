"""The books of a run: who is online and free, open tasks, model versions, updates, timers, money.

They follow from the messages so far and from nothing else: replaying a journal gives them again. The
session writes them, one message at a time; policies, worlds and the learning side read them. Facts
about clients lie in arrays, since there may be a million of them.
"""

import bisect
from array import array
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from fedpace.core.budget import Budget, Ledger
from fedpace.core.commands import (
    GLOBAL,
    Aggregate,
    Blend,
    Cancel,
    CancelTimer,
    Command,
    Drop,
    Probe,
    SetTimer,
    Train,
)
from fedpace.core.events import Arrived, Event, Failed, Joined, Left, Profiled, Started, Timer

AWAY, BUSY, FREE = 0, 1, 2
FEW = 100
"""So many are found one by one sooner than by looking at all."""


class OpenTask(NamedTuple):
    """A task that was given out, when, and the last command about it."""

    command: Probe | Train
    opened_at: float
    awaits_profile: bool = False


class Roster:
    """Clients that have joined: who is online, who of them has no task, what data they have.

    A draw depends on who is free, never on the order of events. Clients are numbered from 0 without
    large gaps; each takes 17 bytes.
    """

    def __init__(self) -> None:
        self._states = bytearray()
        """Of each client, by its number."""
        self._samples = array("q")
        """What each client has got, as last known; of those who have left, too."""
        self._known = array("q")
        """Everybody who ever joined, sorted."""
        self._most: dict[int, int] = {}
        """Client -> the samples that it can hold, where data arrives over time."""
        self._samples_online = self._idle = 0

    @property
    def idle(self) -> int:
        """Number of online clients that are free."""
        return self._idle

    @property
    def online(self) -> list[int]:
        """Everybody who is there, in order."""
        clients: list[int] = np.flatnonzero(np.frombuffer(self._states, dtype=np.uint8)).tolist()
        return clients

    def is_online(self, client: int) -> bool:
        try:
            return self._states[client] != AWAY and client >= 0
        except (IndexError, TypeError):
            return False

    def share(self, client: int) -> float:
        """The client's part of the samples that all online clients have got together."""
        return self._samples[client] / self._samples_online

    def samples(self, client: int) -> int:
        """Samples that the client has got, as last known; it may have left since."""
        return self._samples[client]

    def held(self, client: int) -> int:
        """Samples that it has kept of them: fewer, where more have arrived than it can hold."""
        return min(self._samples[client], self._most.get(client, self._samples[client]))

    def draw(self, count: int, rng: np.random.Generator, but: Collection[int] = ()) -> list[int]:
        """Up to `count` free clients, drawn uniformly without replacement, none of `but`."""
        barred = {client for client in but if self._states[client] == FREE}
        idle = self._idle - len(barred)
        count = min(count, idle)
        if not self._by_trial(count, idle):
            free = [client for client in self._free() if client not in barred]
            return [free[i] for i in rng.choice(len(free), count, replace=False)] if count else []
        known, states = self._known, self._states
        chosen: dict[int, None] = {}
        while len(chosen) < count:
            for i in rng.integers(len(known), size=2 * count).tolist():
                client = known[i]
                if len(chosen) < count and states[client] == FREE and client not in barred:
                    chosen.setdefault(client)
        return list(chosen)

    def only_free(self) -> int | None:
        """The free client that any draw gives, where there is one alone."""
        return self._states.find(FREE) if self._idle == 1 else None

    def pick(self, bits: int) -> int | None:
        """A free client by 128 random bits; None: neither of two tries has met one, so `draw` it."""
        known, states = self._known, self._states
        if self._by_trial(1, self._idle):
            for number in (bits & (2**64 - 1), bits >> 64):
                client = known[number * len(known) >> 64]
                if states[client] == FREE:
                    return client
        return None

    def join(self, client: int, samples: int = 1, most: int | None = None) -> None:
        """Note that a client is there. samples, most: as in Joined."""
        missing = client + 1 - len(self._states)
        if missing > 0:
            self._states.extend(bytes(missing))
            self._samples.extend([0] * missing)
        if most is not None:
            # What it holds tells less than what it has told of all that it had got.
            samples = max(samples, self._samples[client])
            self._most[client] = most
        if not self._known or client > self._known[-1]:
            self._known.append(client)
        elif self._known[place := bisect.bisect_left(self._known, client)] != client:
            self._known.insert(place, client)
        self._samples[client] = samples
        self._samples_online += samples
        self._idle += self._states[client] != FREE
        self._states[client] = FREE

    def leave(self, client: int) -> None:
        if self.is_online(client):
            self._idle -= self._states[client] == FREE
            self._states[client] = AWAY
            self._samples_online -= self._samples[client]

    def hear(self, client: int, seen: int | None) -> None:
        """Note the samples that have come to a client; None: its data does not change."""
        if seen is not None:
            if self.is_online(client):
                self._samples_online += seen - self._samples[client]
            self._samples[client] = seen

    def occupy(self, client: int) -> None:
        """Take a client out of the draw."""
        if self._states[client] == FREE:
            self._states[client] = BUSY
            self._idle -= 1

    def release(self, client: int) -> None:
        """Put a client back into the draw; one that is offline or free already is fine."""
        if self._states[client] == BUSY:
            self._states[client] = FREE
            self._idle += 1

    def _by_trial(self, count: int, idle: int) -> bool:
        """True where drawing from everybody until enough are free is cheaper than listing who is."""
        return 2 * count <= idle and count * len(self._known) < idle**2

    def _free(self) -> list[int]:
        """The free clients, in order."""
        if self._idle > FEW:
            states = np.frombuffer(self._states, dtype=np.uint8)
            clients: list[int] = np.flatnonzero(states == FREE).tolist()
            return clients
        found, place = [], -1
        for _ in range(self._idle):
            place = self._states.find(FREE, place + 1)
            found.append(place)
        return found


class Books:
    """The state of a run so far, to be read.

    now: time of the last event; started: the run has begun; clients: who is there; open, updates: tasks
    by their numbers, those that are given out and those whose updates wait for their use; timers: when
    each runs out; versions: of model slots that have one; ledger: the money.
    """

    def __init__(self, budget: Budget) -> None:
        self.now = 0.0
        self.started = False
        self.clients = Roster()
        self.ledger = Ledger(budget)
        self._versions: dict[str, int] = {}
        self._open: dict[int, OpenTask] = {}
        self._updates: dict[int, OpenTask] = {}
        self._tasks_of: dict[int, tuple[int, ...]] = {}
        """Open tasks of each client that has any."""
        self._timers: dict[str, float] = {}
        self.open: Mapping[int, OpenTask] = MappingProxyType(self._open)
        self.updates: Mapping[int, OpenTask] = MappingProxyType(self._updates)
        self.timers: Mapping[str, float] = MappingProxyType(self._timers)
        self.versions: Mapping[str, int] = MappingProxyType(self._versions)

    def version(self, slot: str = GLOBAL) -> int:
        """Current version of a model slot: how many aggregations and blends made it."""
        return self._versions.get(slot, 0)

    def tasks_of(self, client: int) -> tuple[int, ...]:
        """The client's open tasks."""
        return self._tasks_of.get(client, ())

    def task_of(self, client: int) -> int | None:
        """The client's open task, the first where it has several."""
        tasks = self._tasks_of.get(client)
        return None if tasks is None else tasks[0]

    @property
    def busy(self) -> list[int]:
        """Clients that have open tasks, in the order in which these were opened."""
        return [task.command.client for task in self._open.values()]


class Bookkeeper(Books):
    """Books that are written: one call for each message, which has been checked before."""

    def note(self, message: Event | Command) -> None:
        """Enter a message of any kind; the time is to be set before, by each event."""
        enter = _ENTRIES.get(type(message))
        if enter is not None:
            enter(self, message)

    def open_task(self, command: Probe | Train) -> None:
        """Note a task that is given out, or the work of one that was probed."""
        client, number = command.client, command.task
        before = self._open.get(number)
        if before is not None:
            self._open[number] = before._replace(command=command)
            return
        self._open[number] = OpenTask(command, self.now, isinstance(command, Probe))
        tasks = self._tasks_of.get(client)
        self._tasks_of[client] = (number,) if tasks is None else (*tasks, number)
        self.clients.occupy(client)

    def arrive(self, event: Arrived) -> None:
        """Note that a task is over, and that its update waits."""
        self._updates[event.task] = self.close(event.task)
        if event.result.seen is not None:
            self.clients.hear(event.client, event.result.seen)

    def close(self, number: int) -> OpenTask:
        """Note that a task is over."""
        task = self._open.pop(number)
        client = task.command.client
        tasks = self._tasks_of.pop(client)
        if len(tasks) > 1:
            self._tasks_of[client] = tuple(one for one in tasks if one != number)
        else:
            self.clients.release(client)
        return task

    def use(self, tasks: Collection[int]) -> list[OpenTask]:
        """Note that updates are used up, or thrown away."""
        return [self._updates.pop(task) for task in tasks]

    def advance(self, slot: str) -> None:
        """Note that a model slot has a new version."""
        self._versions[slot] = self._versions.get(slot, 0) + 1

    def _profile(self, event: Profiled) -> None:
        self._open[event.task] = self._open[event.task]._replace(awaits_profile=False)

    def _join(self, event: Joined) -> None:
        self.clients.join(event.client, event.samples, event.most)

    def _leave(self, event: Left) -> None:
        self.clients.leave(event.client)

    def _start(self, event: Started) -> None:
        self.started = True

    def _aggregate(self, command: Aggregate) -> None:
        self.use(command.tasks)
        self.advance(command.slot)

    def _set_timer(self, command: SetTimer) -> None:
        self._timers[command.name] = command.at

    def _end_timer(self, message: Timer | CancelTimer) -> None:
        self._timers.pop(message.name, None)


_ENTRIES: Mapping[type, Callable[[Bookkeeper, Any], object]] = {
    Arrived: Bookkeeper.arrive,
    Train: Bookkeeper.open_task,
    Probe: Bookkeeper.open_task,
    Profiled: Bookkeeper._profile,
    Failed: lambda books, event: books.close(event.task),
    Cancel: lambda books, command: books.close(command.task),
    Joined: Bookkeeper._join,
    Left: Bookkeeper._leave,
    Started: Bookkeeper._start,
    Aggregate: Bookkeeper._aggregate,
    Blend: lambda books, command: books.advance(command.slot),
    Drop: lambda books, command: books.use((command.task,)),
    SetTimer: Bookkeeper._set_timer,
    Timer: Bookkeeper._end_timer,
    CancelTimer: Bookkeeper._end_timer,
}
"""Entries by kind of message; others change nothing. A table, since every message is looked up."""
