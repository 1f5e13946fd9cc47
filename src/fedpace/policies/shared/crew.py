"""Clients that are never let idle: the crew of the purely asynchronous policies."""

from typing import Any

from fedpace.core.commands import Command, Train, Work
from fedpace.core.policy import Policy
from fedpace.core.roster import Roster
from fedpace.policies.shared.checks import resolve


class Crew:
    """`concurrency` clients train at any time; whoever is done is replaced by a draw of the free."""

    def __init__(self, policy: Policy[Any], concurrency: int | None, work: Work) -> None:
        clients = policy.context.clients
        self.concurrency = resolve(
            "concurrency", concurrency, clients, clients, "clients are in the fleet"
        )
        self.roster = Roster()
        self._policy = policy
        self._samples = policy.series("sample")
        self._work = work
        self._started = False
        self._training = self._draws = 0

    def start(self) -> None:
        """From now on `fill` gives work."""
        self._started = True

    def done(self, client: int) -> None:
        """The client's task is over."""
        self._training -= 1
        self.roster.release(client)

    def fill(self, version: int) -> list[Command]:
        """Give work to free clients until `concurrency` train."""
        wanted = self.concurrency - self._training
        if not self._started or wanted < 1 or not self.roster.idle:
            return []
        self._draws += 1
        commands: list[Command] = []
        for client in self.roster.draw_nth(wanted, self._samples, self._draws):
            commands.append(Train(client, self._policy.new_task(), version, self._work))
        self._training += len(commands)
        return commands
