"""Lengths of a run's rounds beside those that the simulator predicts."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

BAND = (10, 90)
"""Percentiles of predictions that a figure shows as a band."""


@dataclass(frozen=True, slots=True)
class RoundPrediction:
    """One run: seconds of its rounds, and of the same number of rounds in each simulation.

    journal: where the run is; words: sentences about what could not be repeated as it was.
    """

    label: str
    policy: str
    seed: int
    clock: str
    journal: str
    real: tuple[float, ...]
    predicted: tuple[tuple[float, ...], ...]
    words: tuple[str, ...] = ()

    @property
    def real_s(self) -> float:
        """The median length of a round."""
        return median(self.real)

    @property
    def predicted_s(self) -> float:
        """The median length of a round in a simulation, the median of all simulations."""
        return median(median(one) for one in self.predicted)

    @property
    def error(self) -> float:
        """How much longer than the real one the predicted median round is, as a share of it."""
        return self.predicted_s / self.real_s - 1

    @property
    def total_error(self) -> float:
        """The same of the time that all rounds took together, as many as a simulation had."""
        return median(sum(one) / sum(self.real[: len(one)]) for one in self.predicted) - 1

    def band(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Low, middle and high of each round's predicted lengths; rounds that all simulations had."""
        rounds = min(map(len, self.predicted))
        lengths = np.array([one[:rounds] for one in self.predicted])
        low, middle, high = np.percentile(lengths, (BAND[0], 50, BAND[1]), axis=0)
        return low, middle, high

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        low, middle, high = self.band()
        return {
            "label": self.label,
            "policy": self.policy,
            "seed": self.seed,
            "clock": self.clock,
            "journal": self.journal,
            "rounds": len(self.real),
            "real_s": list(self.real),
            "predicted_s": middle.tolist(),
            "predicted_low_s": low.tolist(),
            "predicted_high_s": high.tolist(),
            "simulations": len(self.predicted),
            "median_real_s": self.real_s,
            "median_predicted_s": self.predicted_s,
            "error": self.error,
            "total_real_s": sum(self.real),
            "total_predicted_s": median(sum(one) for one in self.predicted),
            "total_error": self.total_error,
            "words": list(self.words),
        }


def lengths_of(ends: Sequence[float]) -> tuple[float, ...]:
    """Lengths of rounds from the times at which they ended; the first began at 0."""
    return tuple(np.diff([0.0, *ends]).tolist())
