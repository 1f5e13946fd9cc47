"""Deadlines of tasks: a client that hangs, and still says that it lives, must not hold up a run.

A task is due after a multiple of what its client's own speeds say, never before a floor. A client
whose speed is not known has a generous time, or, once others have delivered, many times what the
slowest of them would need. Every deadline in a row that a client has missed doubles its next one, so
that one who is only slow gets there.
"""

import math
from collections import Counter
from typing import NamedTuple

from fedpace.core.commands import Probe, Train
from fedpace.core.events import Rates
from fedpace.remote.settings import ServeSettings

_SLOWER = 20.0
"""How many times as slow as the slowest who is known a newcomer may be."""
_MOST_DOUBLINGS = 10


_ESTIMATE_STEPS = 4
"""Batches that measuring the loss around a model takes, about."""


class _Speed(NamedTuple):
    """Speeds of a client, for batches of this size."""

    rates: Rates
    batch_size: int


class _Awaited(NamedTuple):
    command: Probe | Train
    at: float


class Overdue(NamedTuple):
    """A task whose time is over. seconds: how long its client had."""

    client: int
    task: int
    seconds: float


class Deadlines:
    """When tasks that clients work on are due, in seconds of the run's clock."""

    def __init__(self, settings: ServeSettings) -> None:
        self._factor, self._floor_s = settings.deadline_factor, settings.deadline_floor_s
        self._first_s = settings.first_deadline_s
        self._awaited: dict[int, _Awaited] = {}
        self._speeds: dict[int, _Speed] = {}
        self._missed: Counter[int] = Counter()
        self._soonest: float | None = None

    def opened(self, command: Probe | Train, at: float) -> None:
        """Note that a client has something to do from now on."""
        if self._factor:
            self._awaited[command.task] = _Awaited(command, at)
            self._soonest = None

    def closed(self, task: int) -> None:
        """Note that nothing is awaited of a task; one that is unknown is fine."""
        if self._awaited.pop(task, None) is not None:
            self._soonest = None

    def learned(self, client: int, rates: Rates, batch_size: int, done: bool) -> None:
        """Take a client's speeds for batches of this size. done: they came with an update."""
        self._speeds[client] = _Speed(rates, batch_size)
        self._soonest = None
        if done:
            self._missed.pop(client, None)

    def next_at(self) -> float:
        """When the next task is overdue."""
        if self._soonest is None:
            self._soonest = min((self._due(*one) for one in self._awaited.values()), default=math.inf)
        return self._soonest

    def overdue(self, now: float) -> list[Overdue]:
        """Tasks whose time is over; they are awaited no more."""
        if now < self.next_at():
            return []
        found = [
            Overdue(one.command.client, task, now - one.at)
            for task, one in self._awaited.items()
            if self._due(*one) <= now
        ]
        for one in found:
            self.closed(one.task)
            self._missed[one.client] += 1
        return found

    def expected_s(self, command: Probe | Train, at: float) -> float | None:
        """Seconds that a task from `at` on should take by its client's speeds; None: not known."""
        own = self._speeds.get(command.client)
        return None if own is None else expected_s(command, at, *own)

    def left_s(self, task: int, now: float) -> float | None:
        """Seconds until a task is overdue; None where it has no deadline."""
        awaited = self._awaited.get(task)
        return None if awaited is None else self._due(*awaited) - now

    def _due(self, command: Probe | Train, at: float) -> float:
        own = self._speeds.get(command.client)
        if own is not None:
            seconds = max(self._factor * expected_s(command, at, *own), self._floor_s)
        else:
            seconds = max(self._first_s, self._floor_s)
            others = self._speeds.values()
            slowest_s = max((expected_s(command, at, *one) for one in others), default=0.0)
            if slowest_s:
                seconds = min(seconds, max(_SLOWER * slowest_s, self._floor_s))
        return at + seconds * 2.0 ** min(self._missed[command.client], _MOST_DOUBLINGS)


def expected_s(command: Probe | Train, at: float, rates: Rates, batch_size: int) -> float:
    """Seconds from a command to its answer, at most, for a client of these speeds at a batch size."""
    if isinstance(command, Probe):
        return rates.down_s + rates.batch_s * command.batch_size / batch_size
    work = command.work
    batch_s = rates.batch_s * max(work.batch_size / batch_size, 1.0)
    steps = work.steps or (work.epochs or 1) * rates.batches
    if work.estimate is not None:
        steps += _ESTIMATE_STEPS
    whole_s = rates.down_s + steps * batch_s + (1 + (work.estimate == "gradient")) * rates.up_s
    if work.stop_at is None:
        return whole_s
    return min(whole_s, max(work.stop_at - at, 0.0) + batch_s + rates.up_s)
