"""Purely asynchronous training: clients are never let idle. Shared by FedBuff and FedAsync."""

from collections.abc import Iterator
from typing import TypeVar

from fedpace.core.commands import Command, Drop, Train
from fedpace.core.events import Arrived, Failed, Joined, Started
from fedpace.core.policy import Commands, Context, Policy
from fedpace.policies.shared.checks import resolve

S = TypeVar("S")


class Asynchronous(Policy[S]):
    """`concurrency` clients train at any time; whoever is done is replaced by a draw of the free.

    An update older than `max_staleness` is dropped (None: none is); `take` says what the others do.
    """

    asynchronous = True

    def __init__(
        self,
        settings: S,
        context: Context,
        concurrency: int | None,
        epochs: int | None,
        max_staleness: int | None,
    ) -> None:
        super().__init__(settings, context)
        clients = context.clients
        self.concurrency = resolve(
            "concurrency", concurrency, clients, clients, "clients are in the fleet"
        )
        self._work, self._max_staleness = context.work(epochs), max_staleness
        self._draws = 0

    def take(self, update: Arrived, staleness: int) -> Commands:
        """Use an update, or keep it for its use."""
        raise NotImplementedError

    def on_started(self, event: Started) -> Commands:
        return self._fill()

    def on_joined(self, event: Joined) -> Commands:
        return self._fill()

    def on_failed(self, event: Failed) -> Commands:
        return self._fill()

    def on_arrived(self, event: Arrived) -> Iterator[Command]:
        staleness, most = self.version - event.version, self._max_staleness
        if most is not None and staleness > most:
            yield Drop(event.task, f"staleness {staleness} is over {most}")
        else:
            yield from self.take(event, staleness)
        yield from self._fill()

    def _fill(self) -> Iterator[Command]:
        """Give work to free clients until `concurrency` train, once the run has started."""
        books = self.books
        wanted = self.concurrency - len(books.open)
        if books.started and wanted > 0 and books.clients.idle:
            for client in self._draw(wanted):
                yield Train(client, self.new_task(), self.version, self._work)

    def _draw(self, count: int) -> list[int]:
        """Free clients; each draw has a key of its own, so that none depends on those before it."""
        self._draws += 1
        if count == 1:  # at nearly every event, so without making a generator
            client = self.books.clients.only_free()
            if client is None:
                client = self.books.clients.pick(self.entropy("sample", self._draws))
            if client is not None:
                return [client]
        return self.books.clients.draw(count, self.generator("sample", self._draws))
