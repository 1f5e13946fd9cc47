"""Facts: lines that a runtime writes into the journal beside events and commands."""

from typing import Any

from fedpace.core.commands import GLOBAL
from fedpace.core.evaluation.metric import ACCURACY_NAME, LOSS_NAME
from fedpace.core.events import Record, always


class _Fact(Record, frozen=True, tag_field="fact", tag=str.lower):
    """Base of all facts; its lines begin with `{"fact":"..."`."""


class Evaluated(_Fact, frozen=True):
    """The model of a slot was tested on held-out data.

    metrics: values by name, the task's main metric first; one that is not finite is left out.
    """

    at: float
    version: int
    metrics: dict[str, float]
    slot: str = always(GLOBAL)

    @property
    def accuracy(self) -> float | None:
        """The value of the metric of that name; None where the task has none."""
        return self.metrics.get(ACCURACY_NAME)

    @property
    def loss(self) -> float | None:
        """The mean loss; None where it is not finite."""
        return self.metrics.get(LOSS_NAME)


class ClientsEvaluated(_Fact, frozen=True):
    """The global model was tested on every client's own test samples, by the task's main metric.

    values: of client 0, 1, ..., None where one is not finite; the rest as in `Fairness`.
    """

    at: float
    version: int
    metric: str
    mean: float
    worst_decile: float
    spread: float
    groups: dict[str, float]
    values: tuple[float | None, ...]


class Spent(_Fact, frozen=True):
    """Cost of the run so far; after every round and at the end, where anything costs money."""

    at: float
    money: float


class Ignored(_Fact, frozen=True):
    """Something came of a task or timer that is closed; the policy does not hear of it."""

    at: float
    what: str
    client: int | None = None
    task: int | None = None


class Changed(_Fact, frozen=True):
    """A run goes on with another value of an operational setting, by its key in a config.

    was, now: None where it is not set.
    """

    at: float
    key: str
    was: Any = None
    now: Any = None


class Closed(_Fact, frozen=True):
    """A task was still open when the run ended, and comes to nothing."""

    at: float
    client: int
    task: int


class KeptOut(_Fact, frozen=True):
    """A version has the weights of the one before: the step to it led to numbers that are no model."""

    at: float
    version: int
    slot: str = always(GLOBAL)


class RolledBack(_Fact, frozen=True):
    """The models were brought back to how they were at version `to` of the global one.

    version: that it has now, and keeps; policies do not hear of it. Updates that were made from
    versions in between count for nothing.
    """

    at: float
    version: int
    to: int
    reason: str


NOTHING_HAPPENED = "; nothing happened: "
"""Between the reason of a run's end and why its model has never changed, where it has not."""


class Finished(_Fact, frozen=True):
    """The run is over. diverged: the round that came to numbers that are not finite, if one has."""

    at: float
    reason: str
    diverged: int | None = None


Fact = (
    Evaluated | ClientsEvaluated | Spent | Ignored | Changed | KeptOut | RolledBack | Closed | Finished
)
