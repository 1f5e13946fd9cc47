"""Rounds that wait: what synchronous FedAvg and HeteroFL have in common.

A round asks clients and ends when n of them are there, or at a deadline if a quorum has arrived.
Updates are averaged by the samples that their clients have.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from fedpace.core.commands import (
    Aggregate,
    Cancel,
    CancelTimer,
    Command,
    Note,
    SetTimer,
    Train,
    Work,
)
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Joined, Left, Started, Timer
from fedpace.core.policy import Commands, Context, Policy
from fedpace.core.roster import Roster
from fedpace.policies.shared.checks import resolve

S = TypeVar("S")
DEADLINE = "deadline"


class Waiting(Policy[S]):
    """One round after the other; `works` says what each client is given.

    n: updates that a round waits for (None: of all clients); asked: clients that it asks, n at first;
    deadline_s: it ends then (None: it waits), if `quorum` updates have arrived.
    """

    def __init__(
        self,
        settings: S,
        context: Context,
        n: int | None,
        deadline_s: float | None,
        quorum: int,
    ) -> None:
        super().__init__(settings, context)
        self.n = resolve("n", n, context.clients, context.clients, "clients are in the fleet")
        if quorum > self.n:
            raise ConfigError(
                f"quorum is {quorum}, but a round has {self.n} clients; "
                f"set quorum between 0 and {self.n}"
            )
        self.asked = self.n
        self._deadline_s, self._quorum = deadline_s, quorum
        self._roster = Roster()
        self._version = self._draws = 0
        self._started = self._in_round = self._overdue = False
        self._open: dict[int, int] = {}
        self._arrived: list[Arrived] = []

    def works(self, clients: list[int]) -> Iterable[Work]:
        """What each of these clients is given."""
        raise NotImplementedError

    def was_late(self, client: int) -> None:
        """Hear that a client was not there when its round ended."""

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
        self._roster.hear(event.client, event.result.seen)
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
        yield from self._ask(self.asked)
        if self._deadline_s is not None:
            yield SetTimer(DEADLINE, at + self._deadline_s * (1 + self.context.slack))

    def _ask(self, count: int) -> Iterator[Command]:
        self._draws += 1
        clients = self._roster.draw(count, self.generator("sample", self._draws))
        for client, work in zip(clients, self.works(clients), strict=True):
            self._open[client] = self.new_task()
            yield Train(client, self._open[client], self._version, work)

    def _end_or_wait(self, at: float) -> Commands:
        here = len(self._arrived)
        if here >= self.n or (self._overdue and here >= self._quorum):
            return self._end(at)
        if self._open:
            return ()
        # Everybody has arrived or failed.
        if here >= max(self._quorum, 1):
            return self._end(at)
        return self._ask(max(self._quorum, 1) - here)

    def _end(self, at: float) -> Iterator[Command]:
        yield CancelTimer(DEADLINE)
        for client, task in self._open.items():
            yield Cancel(client, task, "late" if self._overdue else "enough others arrived")
            self._roster.release(client)
            self.was_late(client)
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
