"""When a run looks at its model, and when it ends."""

from dataclasses import dataclass
from typing import Annotated

from fedpace.core.budget import Budget
from fedpace.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class EvaluateSettings:
    """One schedule or the other; the first and the last model are always tested."""

    every_rounds: Annotated[int | None, "rounds between tests of the model; default: 1"] = None
    every_s: Annotated[float | None, "seconds of the run's clock between tests of the model"] = None

    def __post_init__(self) -> None:
        if self.every_rounds is not None and self.every_s is not None:
            raise ConfigError("every_rounds and every_s are both set; set one of them")
        for name in ("every_rounds", "every_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}; set it above 0")


@dataclass(frozen=True, slots=True)
class StopSettings:
    """The run ends at whichever comes first, the run's budget among them."""

    rounds: Annotated[
        int | None, "end after this many rounds (aggregations); 100 where nothing sets an end"
    ] = None
    hours: Annotated[float | None, "end after this many hours of the run's clock"] = None
    target: Annotated[float | None, "end when the tested accuracy reaches this, in 0..1"] = None

    def __post_init__(self) -> None:
        for name in ("rounds", "hours", "target"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigError(f"{name} is {value}; set it above 0")
        if self.target is not None and self.target > 1:
            raise ConfigError(f"target is {self.target}; accuracy is a share, set it in 0..1")

    def with_an_end(self, budget: Budget) -> "StopSettings":
        """The rules; where neither they nor the budget set an end, 100 rounds."""
        ends = (self.rounds, self.hours, budget.time_s, budget.money)
        if any(end is not None for end in ends):
            return self
        if self.target is not None:
            raise ConfigError("no end is set; set rounds or hours (target alone may never be reached)")
        return StopSettings(rounds=100)
