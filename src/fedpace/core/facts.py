"""What a runtime writes into the journal beside events and commands."""

from dataclasses import dataclass

from fedpace.core.commands import GLOBAL


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The model of a slot was tested on held-out data. loss: None where it is not finite."""

    at: float
    version: int
    accuracy: float
    loss: float | None = None
    slot: str = GLOBAL


@dataclass(frozen=True, slots=True)
class Spent:
    """What the run has cost so far; after every round and at the end, where anything costs money."""

    at: float
    money: float


@dataclass(frozen=True, slots=True)
class Ignored:
    """Something came of a task or timer that is closed; the policy does not hear of it."""

    at: float
    what: str
    client: int | None = None
    task: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is over."""

    at: float
    reason: str


Fact = Evaluated | Spent | Ignored | Finished
