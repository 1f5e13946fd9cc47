"""Clients that are never let idle: the crew of the purely asynchronous policies."""

from collections.abc import Iterator
from typing import Any

from fedpace.core.commands import Command, Train, Work
from fedpace.core.policy import Policy
from fedpace.policies.shared.checks import resolve


class Crew:
    """`concurrency` clients train at any time; whoever is done is replaced by a draw of the free."""

    def __init__(self, policy: Policy[Any], concurrency: int | None, work: Work) -> None:
        clients = policy.context.clients
        self.concurrency = resolve(
            "concurrency", concurrency, clients, clients, "clients are in the fleet"
        )
        self._policy = policy
        self._work = work
        self._rng = policy.generator("sample")

    def fill(self) -> Iterator[Command]:
        """Give work to free clients until `concurrency` train, once the run has started."""
        policy, books = self._policy, self._policy.books
        wanted = self.concurrency - len(books.open)
        if not books.started or wanted < 1 or not books.clients.idle:
            return
        for client in books.clients.draw(wanted, self._rng):
            yield Train(client, policy.new_task(), policy.version, self._work)
