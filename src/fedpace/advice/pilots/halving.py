"""Successive halving: who gets a pilot, how long it is, and with how many seeds, for what time is left.

A rung is a length of pilots on the run's clock. All candidates are taken to the first; after each the
worse half is left out, and the others go on from where they are. The last few get more seeds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LAST = 3
"""Candidates of the last rung."""
FIRST_HALF = 0.5
"""Share of the time for all rungs before the last."""
SEEDS = 3
"""Seeds of the last rung, where there is time."""
LONGER = 1.05
"""Ratio of lengths from which on a rung is worth its start."""
MOST_SEEDS = 6
"""Seeds of candidates that are still not told apart, where there is time."""


@dataclass(frozen=True, slots=True)
class PilotCost:
    """Real seconds of a candidate's pilot: to begin or go on with it, and for an hour of its clock."""

    setup_s: float
    hour_s: float

    def seconds(self, hours: float) -> float:
        """Seconds on one core for so many hours of the run's clock."""
        return self.setup_s + max(hours, 0.0) * self.hour_s


@dataclass(frozen=True, slots=True)
class Rung:
    """A length of pilots, in hours of their clock: candidates with so many seeds each until then."""

    labels: tuple[str, ...]
    seeds: int
    hours: float


def first_rung(
    labels: Sequence[str],
    costs: Mapping[str, PilotCost],
    least_hours: float,
    horizon_hours: float,
    core_s: float,
) -> Rung | None:
    """The first rung: as many candidates, in their order, as can have a pilot that says something.

    least_hours: the shortest one; core_s: real seconds, times the pilots at once. None: not even one.
    """
    for count in range(len(labels), 0, -1):
        share = 1.0 if count <= LAST else FIRST_HALF / rungs_before_last(count)
        hours = longest(labels[:count], costs, {}, 1, core_s * share)
        if hours >= least_hours or (count == 1 and hours > 0.5 * least_hours):
            return Rung(tuple(labels[:count]), 1, min(max(hours, least_hours), horizon_hours))
    return None


def rungs_before_last(count: int) -> int:
    """Rungs of more than LAST candidates, when a number of them is halved."""
    return max(0, math.ceil(math.log2(count / LAST))) if count > LAST else 0


def longest(
    labels: Sequence[str],
    costs: Mapping[str, PilotCost],
    done_hours: Mapping[tuple[str, int], float],
    seeds: int,
    core_s: float,
) -> float:
    """The length that all these pilots can be taken to, from where they are, in so many seconds."""
    low, high = 0.0, 1e9
    for _ in range(80):
        middle = (low + high) / 2 if high < 1e8 else max(2 * low, 1e-6)
        if spent_s(labels, costs, done_hours, seeds, middle) <= core_s:
            low = middle
        else:
            high = middle
        if low > 1e7:
            break
    return low


def spent_s(
    labels: Sequence[str],
    costs: Mapping[str, PilotCost],
    done_hours: Mapping[tuple[str, int], float],
    seeds: int,
    hours: float,
) -> float:
    """Core seconds of taking pilots with so many seeds to a length, from where they are."""
    total = 0.0
    for label in labels:
        for seed in range(seeds):
            left = hours - done_hours.get((label, seed), 0.0)
            total += costs[label].seconds(left) if left > 0 else 0.0
    return total


def next_rung(
    rung: Rung,
    kept: Sequence[str],
    costs: Mapping[str, PilotCost],
    done_hours: Mapping[tuple[str, int], float],
    horizon_hours: float,
    core_s: float,
) -> Rung | None:
    """The rung after one, for those that are kept; None where there is no time for anything more."""
    labels = tuple(kept)
    if len(labels) > LAST:
        share = 1 / (rungs_before_last(len(labels)) + 1 / FIRST_HALF - 1 + 1e-9)
        hours = longest(labels, costs, done_hours, rung.seeds, core_s * min(share, FIRST_HALF))
        hours = min(hours, horizon_hours)
        if hours > LONGER * rung.hours:
            return Rung(labels, rung.seeds, hours)
        labels = labels[:LAST]  # there is no time for more of them
    for seeds in range(SEEDS, rung.seeds - 1, -1):
        hours = min(longest(labels, costs, done_hours, seeds, core_s), horizon_hours)
        if hours >= (0.999 * horizon_hours if seeds > 2 else rung.hours):
            return _if_more(Rung(labels, seeds, hours), rung)
    return None


def one_more_seed(
    rung: Rung,
    kept: Sequence[str],
    costs: Mapping[str, PilotCost],
    done_hours: Mapping[tuple[str, int], float],
    core_s: float,
) -> Rung | None:
    """Another seed for candidates that went all the way and are not told apart, the best first.

    None: one is left, all have seeds enough, or there is no time for two of them.
    """
    seeds = rung.seeds + 1
    for count in range(len(kept), 1, -1):
        if (
            seeds <= MOST_SEEDS
            and spent_s(kept[:count], costs, done_hours, seeds, rung.hours) <= core_s
        ):
            return Rung(tuple(kept[:count]), seeds, rung.hours)
    return None


def _if_more(new: Rung, old: Rung) -> Rung | None:
    """A rung that is more than the one before it."""
    more = new.seeds > old.seeds or new.hours > LONGER * old.hours
    return new if more else None


def keep_better(order: Sequence[str], even: str | None) -> list[str]:
    """The better half of candidates, and the one that counts data most evenly while many are left.

    A biased policy is often ahead at first, and stops short of the target later.
    """
    count = max(LAST, math.ceil(len(order) / 2))
    kept = list(order[:count])
    if even is not None and even in order and even not in kept and len(order) > LAST + 1:
        kept[-1] = even
    return kept
