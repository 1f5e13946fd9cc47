"""A histogram of seconds that is never changed: a snapshot keeps the one that there was."""

from bisect import bisect_left
from dataclasses import dataclass, replace

BOUNDS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """Values by the bounds that they do not exceed; the last count is of those above all bounds."""

    counts: tuple[int, ...]
    total: float

    @classmethod
    def empty(cls) -> "Histogram":
        return cls((0,) * (len(BOUNDS_S) + 1), 0.0)

    def plus(self, seconds: float) -> "Histogram":
        """This one and another value."""
        place = bisect_left(BOUNDS_S, seconds)
        counts = (*self.counts[:place], self.counts[place] + 1, *self.counts[place + 1 :])
        return replace(self, counts=counts, total=self.total + seconds)

    def cumulative(self) -> list[tuple[str, float]]:
        """Upper bounds, as Prometheus writes them, and how many values are at most that."""
        found, below = [], 0
        for bound, count in zip((*BOUNDS_S, float("inf")), self.counts, strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else str(bound), float(below)))
        return found
