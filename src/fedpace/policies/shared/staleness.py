"""Staleness factors: the weight of updates that were trained on an old model, decided here alone.

Staleness d is the number of versions that the model has had since the client downloaded it: 0 for a
fresh update. A factor multiplies the update's weight once, when the update is used, and never the
settings that it was made from. Every factor is 1 for d = 0, at most 1, and never grows with d.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from fedpace.core.errors import Checked, Natural, NonNegative, between

MOST_EXPONENT = 20.0
"""Beyond it an update that is a few thousand versions old would weigh nothing at all in floats."""


def polynomial(staleness: int, exponent: float) -> float:
    """s(d) = (d + 1)^(-a).

    FedAsync (Xie et al., 2019), section 5.2, "polynomial"; FedBuff (Nguyen et al., 2022) has a = 1/2;
    FedCompass (Li et al., 2024), appendix E.2, multiplies it by a constant of its own.
    """
    return float((staleness + 1) ** -exponent)


def hinge(staleness: int, slope: float, free: int) -> float:
    """s(d) = 1 up to d = b, then 1 / (a (d - b) + 1).

    FedAsync, section 5.2, "hinge".
    """
    return 1.0 if staleness <= free else 1.0 / (slope * (staleness - free) + 1.0)


@dataclass(frozen=True, slots=True)
class Staleness(Checked):
    """The factor s(d) of every policy that uses old updates; the defaults are FedAsync's."""

    TABLE: ClassVar[str] = "staleness."
    kind: Annotated[
        Literal["polynomial", "constant", "hinge"], "how an update's weight falls with its staleness d"
    ] = "polynomial"
    exponent: Annotated[float, between(0, MOST_EXPONENT), "polynomial: a in (d + 1)^(-a)"] = 0.5
    slope: Annotated[NonNegative, "hinge: a in 1 / (a (d - b) + 1)"] = 10.0
    free: Annotated[Natural, "hinge: b, the staleness up to which nothing is lost"] = 4

    def __call__(self, staleness: int) -> float:
        match self.kind:
            case "polynomial":
                return polynomial(staleness, self.exponent)
            case "hinge":
                return hinge(staleness, self.slope, self.free)
            case "constant":
                return 1.0


POLYNOMIAL = Staleness()
"""The default of every policy: (d + 1)^(-1/2)."""
