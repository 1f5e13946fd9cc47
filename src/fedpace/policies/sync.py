"""Synchronous FedAvg (McMahan et al., AISTATS 2017), with the usual ways to live with stragglers.

Every round n clients train the whole model for a fixed number of epochs, and the round ends when
they are all there. Options: ask more than n and take the first n (over-selection, Bonawitz et al.,
2019); end the round at a fixed deadline and drop who is late, as long as a quorum has arrived.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import (
    Aggregate,
    Cancel,
    CancelTimer,
    Command,
    Note,
    SetTimer,
    Train,
)
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Joined, Left, Started, Timer
from fedpace.core.policy import Commands, Context, Policy
from fedpace.core.roster import Roster
from fedpace.policies.checks import at_least, resolve

DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class SyncSettings:
    n: Annotated[int | None, "clients whose updates a round waits for; default: all"] = None
    over_selection: Annotated[float, "ask this many times n clients, take the first n"] = 1.0
    deadline_s: Annotated[float | None, "end a round after this time; default: wait for n"] = None
    quorum: Annotated[int, "updates that a deadline must wait for; 0 allows empty rounds"] = 1
    epochs: Annotated[int | None, "local epochs; default: the run's"] = None

    def __post_init__(self) -> None:
        at_least("n", self.n, 1)
        at_least("over_selection", self.over_selection, 1)
        at_least("quorum", self.quorum, 0)
        at_least("epochs", self.epochs, 1)
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise ConfigError(f"deadline_s is {self.deadline_s}; set it above 0")


class Sync(Policy[SyncSettings]):
    """Synchronous FedAvg: rounds that wait, with over-selection, deadline and quorum as options."""

    Settings = SyncSettings

    def __init__(self, settings: SyncSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._n = resolve("n", settings.n, context.clients, context.clients, "clients are in the fleet")
        if settings.quorum > self._n:
            raise ConfigError(
                f"quorum is {settings.quorum}, but a round has {self._n} clients; "
                f"set quorum between 0 and {self._n}"
            )
        self._roster = Roster()
        self._version = 0
        self._draws = 0
        self._started = self._in_round = self._overdue = False
        self._open: dict[int, int] = {}
        self._arrived: list[Arrived] = []

    def on_started(self, event: Started) -> Commands:
        self._started = True
        return self._begin(event.at)

    def on_joined(self, event: Joined) -> Commands:
        self._roster.join(event.client, event.samples, event.most)
        if not self._started:
            return ()
        if not self._in_round:
            return self._begin(event.at)
        return () if self._open else self._ask(1)

    def on_left(self, event: Left) -> Commands:
        self._roster.leave(event.client)
        return ()

    def on_arrived(self, event: Arrived) -> Commands:
        self._roster.hear(event.client, event.seen)
        del self._open[event.client]
        self._arrived.append(event)
        return self._end_or_wait(event.at)

    def on_failed(self, event: Failed) -> Commands:
        del self._open[event.client]
        self._roster.release(event.client)
        return self._end_or_wait(event.at)

    def on_timer(self, event: Timer) -> Commands:
        self._overdue = True
        return self._end_or_wait(event.at)

    def _begin(self, at: float) -> Iterator[Command]:
        self._in_round = self._roster.idle > 0
        if not self._in_round:
            return
        self._overdue = False
        yield from self._ask(math.ceil(self._n * self.settings.over_selection))
        if self.settings.deadline_s is not None:
            yield SetTimer(DEADLINE, at + self.settings.deadline_s * (1 + self.context.slack))

    def _ask(self, count: int) -> Iterator[Command]:
        self._draws += 1
        for client in self._roster.draw(count, self.generator("sample", self._draws)):
            self._open[client] = self.new_task()
            work = self.context.work(self.settings.epochs)
            yield Train(client, self._open[client], self._version, work)

    def _end_or_wait(self, at: float) -> Commands:
        here = len(self._arrived)
        if here >= self._n or (self._overdue and here >= self.settings.quorum):
            return self._end(at)
        if self._open:
            return ()
        # Everybody has arrived or failed.
        if here >= max(self.settings.quorum, 1):
            return self._end(at)
        return self._ask(max(self.settings.quorum, 1) - here)

    def _end(self, at: float) -> Iterator[Command]:
        yield CancelTimer(DEADLINE)
        for client, task in self._open.items():
            yield Cancel(client, task, "late" if self._overdue else "enough others arrived")
            self._roster.release(client)
        for update in self._arrived:
            self._roster.release(update.client)
        if not self._arrived:
            yield Note("empty round: nobody arrived")
        yield Aggregate(
            tuple(update.task for update in self._arrived),
            tuple(float(self._roster.samples(update.client)) for update in self._arrived),
        )
        self._version += 1
        self._open, self._arrived = {}, []
        yield from self._begin(at)
