"""The learning side of a simulated run as its world sees it, and one that learns nothing.

Calls come in the order of virtual time, as `learn.server.model_server` says; results are expected as
soon as work is given out, since virtual time knows them, and work that comes to nothing is forgotten.
"""

from collections.abc import Sequence
from typing import Protocol

from fedpace.core.commands import Aggregate, Blend, Measure, Probe, Train, Work
from fedpace.core.errors import PolicyError
from fedpace.core.events import Arrived


class Learner(Protocol):
    """A model server, or what takes its place."""

    def opened(self, command: Probe | Train) -> None: ...
    def expect(self, event: Arrived, work: Work) -> None: ...
    def forget(self, task: int) -> None: ...
    def aggregate(self, command: Aggregate) -> None: ...
    def blend(self, command: Blend) -> None: ...
    def measure(self, command: Measure) -> Sequence[float | None]: ...
    def evaluate(self, slot: str) -> Sequence[float | None]: ...


class TimingOnly:
    """Carries no weights: for runs that only ask who does what when."""

    def _nothing(self, *_: object) -> None:
        """Learn nothing of what happens."""

    opened = expect = forget = aggregate = blend = _nothing

    def measure(self, command: Measure) -> tuple[float, ...]:
        raise PolicyError(
            "this policy measures updates, but a timing-only run has none; train for real, or give the "
            "policy what it would measure, such as adel's constants"
        )

    def evaluate(self, slot: str) -> tuple[float, float]:
        raise PolicyError(
            "this policy asks how good its model is, but a timing-only run has none; train for real"
        )
