"""Problems for the tests of deadlines, the bound written a second time and a slow solver of it."""

import math
import warnings
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, minimize
from scipy.special import gammaincc

from fedpace.planning.deadline_bound import DeadlineConstants, DeadlineProblem, DeadlineUsers
from fedpace.planning.deadlines import LINK_MARGIN, plan_deadlines, smallest_budget

KNOWN = DeadlineConstants(
    convexity=0.05, smoothness=1.0, gradient=1.0, noise=5.0, heterogeneity=0.1, distance=20.0
)
FLEET = DeadlineUsers(
    samples_per_s=(200.0, 120.0, 80.0, 50.0, 20.0, 10.0), link_s=(0.1, 0.3, 0.2, 0.5, 1.0, 0.4)
)


def decaying(rounds, first=0.2, by=0.1):
    return tuple(first / (1 + by * t) for t in range(rounds))


def at_random(rng, rounds):
    """A problem and a budget; some are tight, some have long links, some a limit on the scale."""
    users = int(rng.integers(2, 40))
    speeds = rng.lognormal(3, 1, users)
    links = rng.uniform(0, 1, users) * 10 ** rng.uniform(-2, 1)
    known = DeadlineConstants(
        convexity=float(rng.choice([0.0, 0.01, 0.3])),
        smoothness=float(rng.uniform(0.5, 2)),
        gradient=float(10 ** rng.uniform(-1, 1)),
        noise=tuple(10 ** rng.uniform(-1, 1.5, users)),
        heterogeneity=float(rng.uniform(0, 1)),
        distance=float(rng.uniform(0, 10)),
    )
    problem = DeadlineProblem(
        layers=int(rng.integers(1, 14)),
        steps=tuple(np.sort(rng.uniform(0.01, 0.5, rounds))[::-1]),
        users=DeadlineUsers(tuple(speeds), tuple(links)),
        constants=known,
        local_steps=int(rng.integers(1, 4)),
        scale_max=float(rng.choice([2.0, math.inf])),
    )
    return problem, smallest_budget(problem) * float(1 + 10 ** rng.uniform(-1.5, 2))


def with_a_floor(rng, rounds):
    """The same with a smallest rate, from hardly above what the bound needs to some times that."""
    problem, budget = at_random(rng, rounds)
    room = budget / smallest_budget(problem)
    edge = smallest_budget(replace(problem, scale_min=1e6, scale_max=math.inf)) / rounds / 1e6
    floored = replace(problem, rate_min=edge * float(1 + 10 ** rng.uniform(-2, 0.5)))
    return floored, smallest_budget(floored) * room


problems = st.builds(
    lambda seed, rounds: at_random(np.random.default_rng(seed), rounds),
    st.integers(0, 2**32),
    st.integers(1, 30),
)


def replan(before, done, left_s, users=None, constants=None):
    """A plan for the rounds after the first `done`, with the budget that is left.

    users, constants: current estimates; None: those of the plan before, the distance being what it
    predicted for now.
    """
    problem = before.problem
    if constants is None:
        constants = replace(problem.constants, distance=float(before.distances[done]))
    return plan_deadlines(
        replace(
            problem,
            steps=problem.steps[done:],
            users=problem.users if users is None else users,
            constants=constants,
        ),
        left_s,
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


def oracle(problem, budget, grid=24):
    """trust-constr as in the paper: finite differences, from equal deadlines and a grid over m."""
    rounds, (least, most) = problem.rounds, problem.scales
    floor = max(problem.users.link_s) * (1 + LINK_MARGIN)
    edge = smallest_budget(replace(problem, scale_min=1e6, scale_max=math.inf)) / rounds / 1e6
    equal = budget / rounds
    most = min(most, equal / edge)

    def cost(point):
        value = as_in_the_paper(problem, point[:-1] * equal, point[-1] * most)
        return value if math.isfinite(value) else 1e12

    scales = np.geomspace(least, most * (1 - 1e-4), grid) / most if least < most else [1.0]
    start = min((np.array([1.0] * rounds + [scale]) for scale in scales), key=cost)
    rows = np.vstack(
        [np.append(np.ones(rounds), 0), np.column_stack([np.eye(rounds), np.zeros(rounds)])]
    )
    reach = np.column_stack([np.eye(rounds), np.full(rounds, -edge * most / equal)])
    inside = [
        LinearConstraint(rows, [0] + [floor / equal] * rounds, [rounds] + [np.inf] * rounds),
        LinearConstraint(reach, 0, np.inf, keep_feasible=True),
        LinearConstraint(np.eye(rounds + 1)[-1:], least / most, 1, keep_feasible=True),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = minimize(
            cost,
            start,
            method="trust-constr",
            constraints=inside,
            options={"maxiter": 300, "gtol": 1e-10},
        )
    deadlines, scale = found.x[:-1] * equal, found.x[-1] * most
    kept = deadlines.sum() <= budget * (1 + 1e-9) and deadlines.min() >= floor * (1 - 1e-9)
    return (
        as_in_the_paper(problem, deadlines, scale) if kept and scale >= least * (1 - 1e-9) else math.inf
    )
