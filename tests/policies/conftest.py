"""A policy in a session with nothing around it: tests say what happens and look at the answers."""

import pytest

from fedpace.core.budget import Budget
from fedpace.core.commands import Probe, Train
from fedpace.core.events import Joined, Profiled, Started
from fedpace.core.journal import Memory
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.core.session import Session
from tests.messages import arrived

TEN_LAYERS = ModelProfile.even(10, 1000, forward_share=0.3)


class Stage:
    """Drives one policy by hand."""

    def __init__(
        self,
        kind,
        clients=4,
        model=TEN_LAYERS,
        batch_size=20,
        slack=0.0,
        samples=200,
        train=None,
        budget=None,
        **settings,
    ):
        values = {"epochs": 1, "slack": slack, "budget": budget or Budget()} | (train or {})
        context = Context(0, clients, model, batch_size, **values)
        self.memory = Memory()
        self.session = Session(kind(kind.Settings(**settings), context), self.memory)
        self.samples = samples
        for client in range(clients):
            self.tell(Joined(0.0, client, samples if isinstance(samples, int) else samples[client]))
        self.first = self.tell(Started(0.0))

    def tell(self, event):
        return self.session.handle(event)

    def open_tasks(self):
        """Client -> the command that opened its task."""
        return {
            command.client: command
            for command in self.memory.messages
            if isinstance(command, (Probe, Train)) and command.task in self.session.books.open
        }

    def arrive(self, at, client, **changes):
        opened = self.open_tasks()[client]
        values = {"depth": 10, "steps": 10, "samples": 200, "up_bytes": 1000} | changes
        return self.tell(arrived(at, client, opened.task, opened.version, **values))

    def profile(self, at, client, rates):
        return self.tell(Profiled(at, client, self.open_tasks()[client].task, rates))


@pytest.fixture
def stage():
    return Stage


def of(kind, commands):
    return [command for command in commands if isinstance(command, kind)]
