"""Bounds of figures: wide enough for a busy machine, and nearer than a mistake."""

from collections.abc import Mapping
from dataclasses import dataclass

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Bound:
    """aim: what is wanted on a quiet machine; gate: what fails, on the worse side of it."""

    aim: float
    gate: float

    def __post_init__(self) -> None:
        if self.aim == self.gate:
            raise ValueError("a gate must lie on one side of its aim")

    @property
    def is_least(self) -> bool:
        return self.gate < self.aim

    def holds(self, figure: float, strict: bool = False) -> bool:
        bound = self.aim if strict else self.gate
        return figure >= bound if self.is_least else figure <= bound


BOUNDS = {
    "whole run, over a loop by hand": Bound(1.0, 0.85),
    "CNN of 582,026 parameters, tests over batches of 500": Bound(1.3, 1.0),
    "J1, over a loop by hand in two processes": Bound(1.3, 1.1),
    "J2, over a loop by hand in two processes": Bound(4.5, 3.2),
    "J2, by torch's operators, over a loop by hand": Bound(3.0, 2.5),
    "GRU, 79,044 parameters, stacked over one by one": Bound(2.0, 1.6),
    "LSTM of 32, 20 tokens, stacked over one by one": Bound(3.0, 2.0),
    "encoder of 32, 20 tokens, stacked over one by one": Bound(2.5, 2.0),
    "ALBERT of 64, 20 tokens, stacked over one by one": Bound(2.0, 1.3),
    "J2, FedBuff over SyncFL": Bound(0.8, 0.7),
    "J2, FedBuff with K = 10 over SyncFL": Bound(0.85, 0.65),
    "TimelyFL, a million clients, events over a loop by hand": Bound(0.5, 0.35),
    "FedBuff, a million clients, events over a loop by hand": Bound(0.45, 0.3),
    "a million clients, peak MiB": Bound(400, 4096),
    "a million clients that train, bytes a client": Bound(350, 600),
    "ResNet-20, partial training over its prediction": Bound(1.1, 1.2),
    "VGG11, partial training over its prediction": Bound(1.1, 1.2),
    "ResNet-20, partial training away from its clock": Bound(1.1, 1.2),
    "VGG11, partial training away from its clock": Bound(1.1, 1.2),
    "empty task, round trip in ms": Bound(20, 40),
    "45 MB down and up, over a bare stream": Bound(3, 4),
}


def table(figures: Figures) -> str:
    """One line a figure that has a bound."""
    lines = [f"{'':58}{'measured':>10}{'aim':>10}{'gate':>10}"]
    for name, bound in BOUNDS.items():
        if name in figures:
            figure = figures[name]
            word = "" if bound.holds(figure, strict=True) else "  short of the aim"
            word = word if bound.holds(figure) else "  FAILS"
            numbers = "".join(f"{one:>10,.4g}" for one in (figure, bound.aim, bound.gate))
            lines.append(f"{name:58}{numbers}{word}")
    return "\n".join(lines)


def failed(figures: Figures) -> list[str]:
    return [
        name for name, bound in BOUNDS.items() if name in figures and not bound.holds(figures[name])
    ]
