"""Differences between labels over the seeds that both have, and what those seeds can tell.

Runs of two labels with one seed have the same data, fleet and draws, so their difference is less noisy
than either. Its mean over seeds lies in Student's interval; where 0 is outside, the seeds tell the two
labels apart at that confidence.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

CONFIDENCE = 0.95
ROUNDING = 1e-9
"""Relative spread of differences that are the same but for rounding."""
MOST_LABELS = 64
"""Labels of which every pair is compared; of more each one is compared with the first."""


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean of one label's value less another's, over `seeds` seeds, and its interval.

    low, high: None for fewer than two seeds, and where all differ by the same, other than 0: models are
    tested now and then, so that times agree by chance, and no spread is known. missing: seeds that both
    labels have run and at least one has no value for; the difference is then of the others, flattered.
    """

    seeds: int
    missing: int
    mean: float | None
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> str:
        """less, more, level (0 is in the interval), or unknown."""
        if self.low is None or self.high is None or self.missing:
            return "unknown"
        if self.low <= 0 <= self.high:
            return "level"
        return "less" if self.high < 0 else "more"


def paired_difference(
    one: Mapping[int, float | None], other: Mapping[int, float | None]
) -> PairedDifference:
    """The difference `one` less `other`. Both: values by seed, None where a run has none."""
    both = sorted(one.keys() & other.keys())
    pairs = [(one[seed], other[seed]) for seed in both]
    found = [a - b for a, b in pairs if a is not None and b is not None]
    missing = len(both) - len(found)
    if not found:
        return PairedDifference(0, missing, None)
    mean = statistics.fmean(found)
    if len(found) < 2:
        return PairedDifference(1, missing, mean)
    spread = statistics.stdev(found)
    if spread <= ROUNDING * abs(mean) and mean:
        return PairedDifference(len(found), missing, mean)
    reach = student_quantile(len(found) - 1) * spread / math.sqrt(len(found))
    return PairedDifference(len(found), missing, mean, mean - reach, mean + reach)


def student_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """The t between whose negative and itself Student's distribution has that share."""
    low, high = 0.0, 1.0
    while _share_within(high, freedom) < confidence:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < confidence else (low, middle)
    return (low + high) / 2


def _share_within(t: float, freedom: int) -> float:
    """P(|T| < t) for whole degrees of freedom: Abramowitz and Stegun, 26.7.3 and 26.7.4."""
    angle = math.atan(t / math.sqrt(freedom))
    squared = math.cos(angle) ** 2
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 or not odd else 0.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * squared
        total += term
    if odd:
        return 2 / math.pi * (angle + math.sin(angle) * total) if freedom > 1 else 2 * angle / math.pi
    return math.sin(angle) * total
