"""What the world tells a learner, and a learner that learns nothing.

Calls come in the order of virtual time. A task is `opened` (the client has the slot's current
weights), then `will_arrive` with known work, and ends in one `aggregate` or in `forget`; work that
comes to nothing is only forgotten. Training may happen anywhere between `will_arrive` and `aggregate`.
"""

from collections.abc import Sequence
from typing import Protocol

from fedpace.core.commands import Aggregate, Blend, Measure, Work
from fedpace.core.errors import PolicyError
from fedpace.core.events import Arrived


class Learner(Protocol):
    """The learning side of a simulated run."""

    def opened(self, task: int, slot: str) -> None: ...
    def will_arrive(self, event: Arrived, work: Work) -> None: ...
    def forget(self, task: int) -> None: ...
    def aggregate(self, command: Aggregate) -> None: ...
    def blend(self, command: Blend) -> None: ...
    def measure(self, command: Measure) -> Sequence[float | None]: ...
    def evaluate(self, slot: str) -> Sequence[float | None]: ...


class TimingOnly:
    """Carries no weights: for runs that only ask who does what when."""

    def opened(self, task: int, slot: str) -> None:
        pass

    def will_arrive(self, event: Arrived, work: Work) -> None:
        pass

    def forget(self, task: int) -> None:
        pass

    def aggregate(self, command: Aggregate) -> None:
        pass

    def blend(self, command: Blend) -> None:
        pass

    def measure(self, command: Measure) -> tuple[float, ...]:
        raise PolicyError(
            "this policy measures updates, but a timing-only run has none; train for real, or give the "
            "policy what it would measure, such as adel's constants"
        )

    def evaluate(self, slot: str) -> tuple[float, float]:
        raise PolicyError(
            "this policy asks for accuracy, but a timing-only run has none; train for real"
        )
