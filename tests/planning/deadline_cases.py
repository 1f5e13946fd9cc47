"""Problems for the tests of deadlines, and the bound written a second time."""

import math

import numpy as np
from hypothesis import strategies as st
from scipy.special import gammaincc

from fedpace.planning.deadline_bound import (
    Constants,
    Problem,
    Users,
)
from fedpace.planning.deadlines import smallest_budget

KNOWN = Constants(
    convexity=0.05, smoothness=1.0, gradient=1.0, noise=5.0, heterogeneity=0.1, distance=20.0
)
FLEET = Users(
    samples_per_s=(200.0, 120.0, 80.0, 50.0, 20.0, 10.0), link_s=(0.1, 0.3, 0.2, 0.5, 1.0, 0.4)
)


def decaying(rounds, first=0.2, by=0.1):
    return tuple(first / (1 + by * t) for t in range(rounds))


def at_random(rng, rounds):
    """A problem and a budget; some are tight, some have long links, some a limit on the scale."""
    users = int(rng.integers(2, 40))
    speeds = rng.lognormal(3, 1, users)
    links = rng.uniform(0, 1, users) * 10 ** rng.uniform(-2, 1)
    known = Constants(
        convexity=float(rng.choice([0.0, 0.01, 0.3])),
        smoothness=float(rng.uniform(0.5, 2)),
        gradient=float(10 ** rng.uniform(-1, 1)),
        noise=tuple(10 ** rng.uniform(-1, 1.5, users)),
        heterogeneity=float(rng.uniform(0, 1)),
        distance=float(rng.uniform(0, 10)),
    )
    problem = Problem(
        layers=int(rng.integers(1, 14)),
        steps=tuple(np.sort(rng.uniform(0.01, 0.5, rounds))[::-1]),
        users=Users(tuple(speeds), tuple(links)),
        constants=known,
        local_steps=int(rng.integers(1, 4)),
        scale_max=float(rng.choice([2.0, math.inf])),
    )
    return problem, smallest_budget(problem) * float(1 + 10 ** rng.uniform(-1.5, 2))


problems = st.builds(
    lambda seed, rounds: at_random(np.random.default_rng(seed), rounds),
    st.integers(0, 2**32),
    st.integers(1, 30),
)


def as_in_the_paper(problem, deadlines, scale):
    """Theorem 1 again, written from the formulas one after the other."""
    known, number = problem.constants, len(problem.users)
    noises = np.broadcast_to(known.noise, number)
    fixed = sum(noises**2 / (scale * np.array(problem.users.samples_per_s))) / number**2
    fixed += 6 * known.smoothness * known.heterogeneity
    fixed += 8 * (problem.local_steps - 1) ** 2 * known.gradient**2
    distance = known.distance
    for step, deadline in zip(problem.steps, deadlines, strict=True):
        chances = gammaincc(np.arange(1, problem.layers + 1), deadline / scale) ** number
        if chances.max() >= 0.5:
            return math.inf
        truncated = known.gradient**2 * 4 * number / (number - 1)
        truncated *= sum((1 + chances) / (1 - 2 * chances))
        distance = (1 - known.convexity * step) * distance + step**2 * (fixed + truncated)
    return distance
