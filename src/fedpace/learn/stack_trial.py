"""A short measurement: from how many jobs on a stack is quicker than one job after the other."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from fedpace.learn.job import Job
from fedpace.learn.weights import Weights

Work = Sequence[tuple[Job, Weights]]

_STEPS, _REPEATS = 3, 3
_GAIN = 1.1  # a stack that is less quick than so many times is not worth its rounding


def fewest_that_pay(
    alone: Callable[[Work], Any],
    together: Callable[[Work], Any],
    jobs: Work,
    clock: Callable[[], float],
    budget_s: float,
) -> int | None:
    """The least number of jobs of which a stack pays, None if it never does.

    The jobs are cut to a few steps. Each way is tried thrice, and its best time counts. As many jobs
    are tried as would take `budget_s` one by one; if these are fewer than four, steps are long enough
    for arithmetic to be what they cost, which a stack does not change.
    A stack of n jobs takes a + b n seconds, found from a small and a large one.
    """
    short = [(_short(job, _STEPS), weights) for job, weights in jobs]

    def seconds(way: Callable[[Work], Any], some: Work) -> float:
        spent = []
        for _ in range(_REPEATS):
            began = clock()
            way(some)
            spent.append(clock() - began)
            if spent[0] > budget_s:
                break
        return min(spent)

    if seconds(alone, [(_short(jobs[0][0], 1), jobs[0][1])]) > budget_s / 4:
        return None
    one = seconds(alone, short[:2]) / 2
    many = min(len(short), int(budget_s / one)) if one > 0 else len(short)
    if many < 4:
        return None
    small, large = seconds(together, short[:2]), seconds(together, short[:many])
    each = (large - small) / (many - 2)
    start = max(small - 2 * each, 0.0)
    gain = one / _GAIN - each
    return max(math.ceil(start / gain), 2) if gain > 0 else None


def _short(job: Job, steps: int) -> Job:
    """At most so many steps, of which a full one is one if there are any."""
    full = min(job.full_steps, 1, steps)
    return replace(
        job, full_steps=full, steps=max(full + min(job.steps - job.full_steps, steps - full), 1)
    )
