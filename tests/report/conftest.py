"""Journals told event by event, and summaries made up from a few numbers."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fedpace.core.budget import Budget
from fedpace.core.commands import Command, Train, Work
from fedpace.core.evaluation.metric import ACCURACY, LOSS
from fedpace.core.events import Arrived, Event, Joined, Rates
from fedpace.core.facts import Fact
from fedpace.core.journal import Header, Memory
from fedpace.core.model import LayerCost, ModelProfile
from fedpace.core.policy import Context, Policy
from fedpace.core.session import Session
from fedpace.report.summary import Summary
from tests import messages

MODEL = ModelProfile(
    (
        LayerCost("input", 600, 1.0, 1.0),
        LayerCost("middle", 300, 1.0, 1.0),
        LayerCost("output", 100, 1.0, 1.0),
    )
)
RATES = Rates(batch_s=1.0, batches=1, down_s=1.0, up_s=1.0)


class Script(Policy):
    """Answers what the test tells it to."""

    tasks_per_client = 2
    answer: Iterable[Command] = ()

    def handle(self, event: Event) -> Iterable[Command]:
        return self.answer


@dataclass
class Tale:
    """A run told by hand; the session checks that it could have happened."""

    header: Header
    memory: Memory = field(default_factory=Memory)

    def __post_init__(self) -> None:
        self.policy = Script(None, self.header.context)
        self.session = Session(self.policy, self.memory)

    def on(self, event: Event, *commands: Command) -> None:
        self.policy.answer = commands
        self.session.handle(event)

    def join(self, at: float, *clients: int) -> None:
        for client in clients:
            self.on(Joined(at, client, samples=10))

    def fact(self, fact: Fact) -> None:
        self.session.record(fact)

    def summary(self) -> Summary:
        return Summary.of(self.header, iter(self.memory.messages))


def make_header(
    seed: int = 7, run: dict[str, Any] | None = None, budget: Budget | None = None
) -> Header:
    context = Context(seed, 8, MODEL, 4, budget=budget or Budget(), metrics=(ACCURACY, LOSS))
    return Header("timelyfl", {"k": 2}, context, run or {}, "0.1.0")


def make_train(client: int, task: int, version: int = 0, **rest: Any) -> Train:
    return Train(client, task, version, Work(batch_size=4, epochs=1), **rest)


def make_arrived(at: float, client: int, task: int, version: int = 0, depth: int = 3) -> Arrived:
    up_bytes = MODEL.suffix_bytes[depth - 1]
    return messages.arrived(
        at, client, task, version, depth=depth, full_steps=1, samples=4, up_bytes=up_bytes, rates=RATES
    )


def make_summary(**values: Any) -> Summary:
    defaults: dict[str, Any] = {
        "policy": "sync",
        "label": "sync",
        "seed": 0,
        "metrics": (ACCURACY, LOSS),
        "money": None,
        "empty_rounds": 0,
        "clients_per_round": [4, 4],
        "round_times": [10.0, 20.0],
        "participation": {0: 1.0, 1: 0.5},
        "finished": "rounds",
        "end_s": 20.0,
        "idle_share": 0.25,
        "down_bytes": 3_000_000,
        "up_bytes": 1_000_000,
        "tasks": 8,
        "arrived": 8,
        "failed": 0,
        "dropped": 0,
        "cancelled": {},
        "mean_staleness": 0.0,
        "mean_depth": 3.0,
        "mean_depth_share": 1.0,
    }
    tracks = {name: values.pop(name, []) for name in ("accuracy", "loss", "accuracy_by_money")}
    tested = {name: tracks[name] for name in ("accuracy", "loss") if tracks[name]}
    paid = {"accuracy": tracks["accuracy_by_money"]} if tracks["accuracy_by_money"] else {}
    merged = defaults | {"values": tested, "values_by_money": paid} | values
    return Summary(**merged, rounds=len(merged["clients_per_round"]))


@pytest.fixture
def header() -> Header:
    return make_header()


@pytest.fixture
def tale(header: Header) -> Tale:
    return Tale(header)


@pytest.fixture
def paid() -> Tale:
    """A tale in which a sample costs 0.1 and a round 2."""
    return Tale(make_header(budget=Budget(sample_cost=(0.1,), round_cost=2.0)))


@pytest.fixture
def train() -> Callable[..., Train]:
    return make_train


@pytest.fixture
def arrived() -> Callable[..., Arrived]:
    return make_arrived


@pytest.fixture
def summary() -> Callable[..., Summary]:
    return make_summary


@pytest.fixture
def labelled() -> Callable[[dict[str, Any]], Header]:
    return lambda run: make_header(run=run)
