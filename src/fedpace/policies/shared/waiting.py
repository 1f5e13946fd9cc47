"""Rounds that wait: what synchronous FedAvg and HeteroFL have in common.

A round asks clients and ends when n of them are there, or at a deadline if a quorum has arrived.
Updates are averaged by the samples that their clients have.
"""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from fedpace.core.commands import Aggregate, Cancel, CancelTimer, Command, Note, SetTimer, Train, Work
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Joined, Started, Timer
from fedpace.core.policy import Commands, Context, Policy
from fedpace.policies.shared.checks import resolve

S = TypeVar("S")
DEADLINE = "deadline"


class Waiting(Policy[S]):
    """One round after the other; `works` says what each client is given.

    n: updates that a round waits for (None: of all clients); asked: clients that it asks, n at first;
    deadline_s: it ends then (None: it waits), if `quorum` updates have arrived.
    """

    def __init__(
        self, settings: S, context: Context, n: int | None, deadline_s: float | None, quorum: int
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
        self._draws = 0
        self._in_round = self._overdue = False
        self._arrived: list[Arrived] = []

    def works(self, clients: list[int]) -> Iterable[Work]:
        """The work of each of these clients."""
        raise NotImplementedError

    def was_late(self, client: int) -> None:
        """Hear that a client was not there when its round ended."""

    def on_started(self, event: Started) -> Commands:
        return self._begin(event.at)

    def on_joined(self, event: Joined) -> Commands:
        if not self.books.started:
            return ()
        if not self._in_round:
            return self._begin(event.at)
        return () if self.books.open else self._ask(1)

    def on_arrived(self, event: Arrived) -> Commands:
        self._arrived.append(event)
        return self._end_or_wait(event.at)

    def on_failed(self, event: Failed) -> Commands:
        return self._end_or_wait(event.at)

    def on_timer(self, event: Timer) -> Commands:
        self._overdue = True
        return self._end_or_wait(event.at)

    def _begin(self, at: float) -> Iterator[Command]:
        self._in_round = self.books.clients.idle > 0
        if not self._in_round:
            return
        self._overdue = False
        yield from self._ask(self.asked)
        if self._deadline_s is not None:
            yield SetTimer(DEADLINE, at + self._deadline_s * (1 + self.context.slack))

    def _ask(self, count: int) -> Iterator[Command]:
        self._draws += 1
        there = [update.client for update in self._arrived]
        rng = self.generator("sample", self._draws)
        clients = self.books.clients.draw(count, rng, but=there)
        for client, work in zip(clients, self.works(clients), strict=True):
            yield Train(client, self.new_task(), self.version, work)

    def _end_or_wait(self, at: float) -> Commands:
        here = len(self._arrived)
        if here >= self.n or (self._overdue and here >= self._quorum):
            return self._end(at)
        if self.books.open:
            return ()
        # Everybody has arrived or failed.
        if here >= max(self._quorum, 1):
            return self._end(at)
        return self._ask(max(self._quorum, 1) - here)

    def _end(self, at: float) -> Iterator[Command]:
        yield CancelTimer(DEADLINE)
        for task, given in list(self.books.open.items()):
            client = given.command.client
            yield Cancel(client, task, "late" if self._overdue else "enough others arrived")
            self.was_late(client)
        if not self._arrived:
            yield Note("empty round: nobody arrived")
        yield Aggregate(
            tuple(update.task for update in self._arrived),
            tuple(float(self.books.clients.samples(update.client)) for update in self._arrived),
        )
        self._arrived = []
        yield from self._begin(at)
