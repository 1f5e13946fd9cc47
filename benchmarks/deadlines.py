"""ADEL-FL's planner against scipy's trust-constr with finite differences, as the paper solves it.

Both minimise the same bound over the same set, in turns; trust-constr starts from equal deadlines and
the best of 24 scales, and evaluates the bound with our vectorised code. Where it says > it was cut off
and the ratio is a lower limit. Run it with OPENBLAS_NUM_THREADS=1: threads that compete for a busy
machine make trust-constr several times slower, and the ratio too good.
"""

import math
import time
import warnings
from dataclasses import replace
from statistics import median

import numpy as np
from scipy.optimize import LinearConstraint, OptimizeResult, minimize

from fedpace.planning.deadline_bound import (
    DeadlineConstants,
    DeadlineProblem,
    DeadlineUsers,
    distance_bound,
)
from fedpace.planning.deadlines import LINK_MARGIN, DeadlinePlan, plan_deadlines, smallest_budget

LAYERS, USERS, ROUND_S, LIMIT_S = 11, 30, 6.0, 60.0


def problem_of(rounds: int) -> DeadlineProblem:
    rng = np.random.default_rng(0)
    users = DeadlineUsers(tuple(rng.lognormal(4, 1, USERS)), tuple(rng.uniform(0.1, 2, USERS)))
    steps = tuple(0.1 / (1 + 10 * t / rounds) for t in range(rounds))
    return DeadlineProblem(LAYERS, steps, users, DeadlineConstants(0.1, 1.0, 1.0, 30.0, 0.1, 10.0))


def slow(problem: DeadlineProblem, budget_s: float) -> tuple[float, OptimizeResult]:
    """The bound that trust-constr finds within the limit, and what it says of itself."""
    rounds, least = problem.rounds, problem.scales[0]
    equal_s, floor_s = budget_s / rounds, max(problem.users.link_s) * (1 + LINK_MARGIN)
    edge = smallest_budget(replace(problem, scale_min=1e6, scale_max=math.inf)) / rounds / 1e6
    most = equal_s / edge

    def cost(point: np.ndarray) -> float:
        if point[:-1].min() <= 0:
            return 1e12
        return min(distance_bound(problem, point[:-1] * equal_s, float(point[-1] * most)), 1e12)

    scales = np.geomspace(least / most, 1 - 1e-4, 24)
    start = min((np.append(np.ones(rounds), scale) for scale in scales), key=cost)
    each = np.eye(rounds + 1)
    inside = [
        LinearConstraint(np.append(np.ones(rounds), 0)[None], 0, rounds),
        LinearConstraint(each[:-1], floor_s / equal_s, np.inf),
        LinearConstraint(each[:-1] - each[-1] * edge * most / equal_s, 0, np.inf, keep_feasible=True),
        LinearConstraint(each[-1:], least / most, 1, keep_feasible=True),
    ]
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = minimize(
            cost,
            start,
            method="trust-constr",
            constraints=inside,
            callback=lambda *_: time.perf_counter() - began > LIMIT_S,
        )
    return cost(found.x), found


def measure(rounds: int, turns: int) -> None:
    problem, budget_s = problem_of(rounds), ROUND_S * rounds
    plan_deadlines(problem, budget_s)  # warms up
    ours: list[float] = []
    theirs: list[float] = []
    cut = False
    for _ in range(turns):
        began = time.perf_counter()
        fast: DeadlinePlan = plan_deadlines(problem, budget_s)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        value, found = slow(problem, budget_s)
        theirs.append(time.perf_counter() - began)
        cut = cut or found.status == 3
    ratios = [their / our for their, our in zip(theirs, ours, strict=True)]
    excess = value / fast.bound - 1
    print(
        f"{rounds:>6}{1e3 * median(ours):>9.1f}{median(theirs):>14.2f}{'>' if cut else ' ':>3}"
        f"{median(ratios):>8.0f}{min(ratios):>9.0f} to {max(ratios):<8.0f}{excess:>10.1e}"
        f"  {'cut off' if cut else 'ended'} after {found.nit} iterations",
        flush=True,
    )


def main() -> None:
    print(f"{LAYERS} layers, {USERS} users, {ROUND_S:g} s a round; trust-constr has {LIMIT_S:g} s")
    print("excess: how far trust-constr's bound is above ours; below 0 it would be better, or outside")
    print(f"{'rounds':>6}{'ours ms':>9}{'trust-constr s':>15}{'times':>10}{'range':>17}{'excess':>12}")
    for rounds, turns in ((8, 5), (32, 5), (100, 3), (500, 1)):
        measure(rounds, turns)


if __name__ == "__main__":
    main()
