"""The contract of a policy: a pure event handler.

A policy sees no clock, socket, tensor or global generator. It is told what happens (`on_*`, one
handler per event) and answers with commands. Its state may depend on nothing but its settings, its
context and the events so far: feeding a journal's events to a fresh policy gives its commands.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from fedpace.core.books import Books
from fedpace.core.budget import Budget
from fedpace.core.commands import Command, Measurement, Work
from fedpace.core.contract.handlers import check_handlers
from fedpace.core.errors import Checked, Count, NonNegative, PolicyError, Positive
from fedpace.core.evaluation.metric import MetricInfo
from fedpace.core.events import Arrived, Event, Failed, Joined, Left, Measured, Profiled, Started, Timer
from fedpace.core.model import ModelProfile
from fedpace.core.random import keyed as seeds

Commands = Iterable[Command]
S = TypeVar("S")


def step_size(lr: float, decay: float, version: int) -> float:
    """lr / (1 + decay * version): inverse decay by the version of the model that a task starts from."""
    return lr / (1 + decay * version)


@dataclass(frozen=True, slots=True)
class Context(Checked):
    """Facts about the run that every policy is told once.

    clients: size of the fleet; batch_size, epochs, steps: the run's local training defaults, steps
    (batches) instead of epochs where they are set;
    slack: share added to deadlines, 0 in simulation, some percent on real networks;
    lr, decay: of local training, see `step_size`; budget: what the run may take, and what things cost;
    metrics: what models are tested by, the main one first, the loss among them; timing-only: none;
    adaptive: the server's optimiser scales every number of a step by its history, as Adam does.
    """

    seed: int
    clients: Count
    model: ModelProfile
    batch_size: Count
    epochs: Count = 1
    slack: NonNegative = 0.0
    steps: Count | None = None
    lr: Positive = 0.05
    decay: NonNegative = 0.0
    budget: Budget = field(default_factory=Budget)
    metrics: tuple[MetricInfo, ...] = ()
    adaptive: bool = False

    def _check_rest(self) -> None:
        self.budget.check(self.clients)

    def work(self, epochs: int | None = None) -> Work:
        """Whole-model work: `epochs` where a policy sets them, else what the run says."""
        if epochs is None and self.steps is not None:
            return Work(self.batch_size, steps=self.steps)
        return Work(self.batch_size, epochs=epochs or self.epochs)

    def step_size(self, version: int) -> float:
        """Learning rate of tasks that start from this version of a model."""
        return step_size(self.lr, self.decay, version)


@dataclass(frozen=True, slots=True)
class NoSettings:
    """Settings of policies that have none."""


class Policy(Generic[S]):
    """Base of all policies. Handlers that are not overridden do nothing.

    A class with a handler that no event calls, or that does not take one event, is a PolicyError.
    Settings: a frozen dataclass; its fields are the keys of the policy's config table.
    tasks_per_client: how many tasks a client may hold open at once.
    evaluates: it asks for the accuracy of a model, which a timing-only run has not.
    plans_with_budget: it decides from the start by the run's time or money, so that a run cannot go on
    later with more of them.
    asynchronous: clients go on without waiting for others, so that a quick one has more updates used.
    revision: a number to raise when the same settings come to lead to other decisions; results that
    studies have kept of another revision are made anew.
    """

    Settings: ClassVar[type[Any]] = NoSettings
    tasks_per_client: ClassVar[int] = 1
    evaluates: ClassVar[bool] = False
    plans_with_budget: ClassVar[bool] = False
    asynchronous: ClassVar[bool] = False
    revision: ClassVar[int] = 0

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        check_handlers(cls, Policy)

    def __init__(self, settings: S, context: Context) -> None:
        self.settings = settings
        self.context = context
        self.books = Books(context.budget)
        """The session's, to be read: it has every event and command so far, the last one included."""
        self._last_task = 0

    @classmethod
    def widths(cls, settings: S) -> tuple[float, ...]:
        """Shares of the model's channels that the policy will ask for: it is told what they cost."""
        return ()

    @classmethod
    def measures(cls, settings: S) -> tuple[Measurement, ...]:
        """Numbers about updates that the policy will ask for; a timing-only run has none."""
        return ()

    @classmethod
    def takes_memory(cls, adaptive: bool) -> bool:
        """Tell if its steps can be made of everybody's last updates (`server.memory`).

        They can if they are means or sums of whole updates of the global model. adaptive: the optimiser
        is, see `Context`.
        """
        return True

    @property
    def version(self) -> int:
        """Current version of the global model."""
        return self.books.version()

    def new_task(self) -> int:
        """A task number that was never used before."""
        self._last_task += 1
        return self._last_task

    def generator(self, purpose: str, *keys: int) -> np.random.Generator:
        """The generator for one purpose of this policy."""
        return seeds.generator(self.context.seed, f"policy.{purpose}", *keys)

    def entropy(self, purpose: str, *keys: int) -> int:
        """128 random bits for one purpose of this policy."""
        return seeds.keyed_entropy(self.context.seed, f"policy.{purpose}", *keys)

    def handle(self, event: Event) -> Commands:
        """Hand an event to its handler."""
        match event:
            case Arrived():
                return self.on_arrived(event)
            case Profiled():
                return self.on_profiled(event)
            case Timer():
                return self.on_timer(event)
            case Failed():
                return self.on_failed(event)
            case Joined():
                return self.on_joined(event)
            case Left():
                return self.on_left(event)
            case Measured():
                return self.on_measured(event)
            case Started():
                return self.on_started(event)
        raise PolicyError(f"{event!r} is no event")

    def on_started(self, event: Started) -> Commands:
        return ()

    def on_joined(self, event: Joined) -> Commands:
        return ()

    def on_left(self, event: Left) -> Commands:
        return ()

    def on_profiled(self, event: Profiled) -> Commands:
        return ()

    def on_arrived(self, event: Arrived) -> Commands:
        return ()

    def on_failed(self, event: Failed) -> Commands:
        return ()

    def on_timer(self, event: Timer) -> Commands:
        return ()

    def on_measured(self, event: Measured) -> Commands:
        return ()
