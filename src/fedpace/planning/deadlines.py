"""ADEL-FL's deadlines and batches (Problem 2), usable on their own.

    minimise  bound(T, m)  s.t.  sum T_t <= T_tot,  T_t >= T_min(m),  p_t,l < 1/2,  m_min <= m <= m_max

With s = 1/m and x_t = T_t/m this is a convex problem with one coupling constraint:

    minimise  N s + K sum_t a_t h(x_t)  s.t.  sum x_t <= T_tot s,  x_t >= T_floor s,  x_t >= x_min

a_t is the weight of round t, h(x) = sum_l (1 + p_l) / (1 - 2 p_l) is convex (checked in the tests for
1 to 200 layers and 2 to 10,000 users) and the same function in every round. So one multiplier decides
all: a round gets the x at which a second more is worth the same as in the others, K a_t |h'(x)|. Then
s fills the budget in closed form, and bisection finds the multiplier at which m is best as well.

Differs: the paper runs scipy's trust-constr on all R + 1 unknowns, with finite differences.
"""

import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from fedpace.core.commands import TOLERANCE
from fedpace.core.errors import ConfigError
from fedpace.planning.checks import check_whole, shown
from fedpace.planning.deadline_bound import (
    DeadlineProblem,
    batches_by_speed,
    bound_by_round,
    distance_bound,
    log_not_reached,
    missed_chances,
    rate_at,
)

MISSED_MOST = 0.5 - 1e-6
"""The bound needs p < 1/2; at this value it is some 10^6 times its best, so nothing is lost."""
LINK_MARGIN = 0.01
"""A deadline is this much longer than the longest link time, so that every user can compute."""
_NODES, _HALVINGS = 4096, 100


@dataclass(frozen=True, slots=True, eq=False)
class DeadlinePlan:
    """Deadlines and batches of all rounds, and their bound.

    Rounds are rows; users or layers (from the input) are columns.
    """

    problem: DeadlineProblem
    budget_s: float
    deadlines_s: np.ndarray  # T_t
    scale: float  # m
    batches: np.ndarray  # S_u,t
    reached: np.ndarray  # 1 - p_t,l: some user delivers layer l
    bound: float
    distances: np.ndarray  # the bound before the first round and after each
    raised: int
    """Batches that B3 put below one sample: their users reach fewer layers than predicted."""


def plan_deadlines(problem: DeadlineProblem, budget_s: float) -> DeadlinePlan:
    """Deadlines, batch scale and batches with the smallest bound within the budget.

    A round with a larger weight a_t = eta_t^2 prod_{j>t} (1 - mu eta_j) gets a longer deadline: they
    fall where eta falls faster than the product rises, and are flat where eta is constant and mu is 0.

    >>> users = DeadlineUsers(samples_per_s=[100, 50, 20, 10], link_s=[0.1, 0.2, 0.5, 1.0])
    >>> constants = DeadlineConstants(0.1, 1.0, 1.0, 3.0, 0.1, 10.0)
    >>> found = plan_deadlines(DeadlineProblem(3, [0.1, 0.05, 0.03], users, constants), budget_s=30)
    >>> found.deadlines_s.round(2).tolist(), round(found.scale, 2), found.batches[0].tolist()
    ([10.99, 9.92, 9.09], 2.07, [204, 101, 39, 18])
    """
    check_budget(budget_s)
    needed_s = smallest_budget(problem)
    if not needed_s * (1 - TOLERANCE) <= budget_s < math.inf:
        fit = fitting_rounds(problem, budget_s) if math.isfinite(budget_s) else 0
        floor = "" if problem.rate_min is None else f" and a rate T/m of at least {problem.rate_min:g}"
        raise ConfigError(
            f"the budget is {budget_s:g} s, but {problem.rounds} rounds need {rounded_up(needed_s)} s "
            f"for a finite bound{floor}; give a finite budget of at least that"
            + (f", or plan at most {fit} rounds" if fit else "")
        )
    deadlines_s, scale = _solve(problem, budget_s, _Slope.table(problem, budget_s))
    return _plan(problem, budget_s, deadlines_s, scale)


def smallest_budget(problem: DeadlineProblem) -> float:
    """R * T_min(m_min): with less, a link takes all of a round or a layer is missed half the time.

    Or T/m is below rate_min, where that is set.
    """
    return problem.rounds * _round_s(problem)


def fitting_rounds(problem: DeadlineProblem, budget_s: float) -> int:
    """The number of the problem's first rounds that the budget allows; 0 if none."""
    check_budget(budget_s)
    if not math.isfinite(budget_s):
        raise ConfigError(f"the budget is {budget_s:g} s; give a finite one")
    needed_s = np.arange(1, problem.rounds + 1) * _round_s(problem) * (1 - TOLERANCE)
    return int(np.count_nonzero(needed_s <= budget_s))


def check_budget(budget_s: float) -> None:
    """Refuse what is no number; whether it is enough is the plan's to say."""
    if not isinstance(budget_s, numbers.Real) or isinstance(budget_s, bool):
        raise ConfigError(f"the budget is {shown(budget_s)}; give a number of seconds")


def rounded_up(seconds: float) -> str:
    """Six digits, rounded up, so that the number works when it is typed back."""
    digits = 5 - math.floor(math.log10(seconds))
    return f"{math.ceil(round(seconds * 10.0**digits, 6)) / 10.0**digits:.6g}"


def choose_rounds(
    problem: DeadlineProblem, budget_s: float, rounds: Iterable[int] | None = None
) -> DeadlinePlan:
    """The plan whose bound is smallest over numbers of rounds; of equal ones, the fewest.

    The first R of the problem's steps are the steps of R rounds; rounds: what to try (None: all from
    1 to the number of steps). Numbers that the budget does not allow are left out. Above 64 numbers
    every few are tried, then all around the best: exact if the bound has one valley in R.
    """
    check_budget(budget_s)
    try:
        given = set(range(1, problem.rounds + 1) if rounds is None else rounds)
    except TypeError:
        raise ConfigError(f"rounds is {shown(rounds)}; give whole numbers to try") from None
    for number in given:
        check_whole("rounds", number, 1, problem.rounds, f", but {problem.rounds} steps are given")
    tried = sorted(given)
    if not tried:
        raise ConfigError(f"rounds is empty; give numbers between 1 and the {problem.rounds} steps")
    most = fitting_rounds(problem, budget_s) if math.isfinite(budget_s) else 0
    fitting = [number for number in tried if number <= most]
    if not fitting:
        return plan_deadlines(_first(problem, tried[0]), budget_s)  # says what is wrong
    slope = _Slope.table(problem, budget_s)
    found: dict[int, tuple[float, np.ndarray, float]] = {}

    def value(place: int) -> float:
        number = fitting[place]
        if number not in found:
            part = _first(problem, number)
            deadlines_s, scale = _solve(part, budget_s, slope)
            found[number] = (distance_bound(part, deadlines_s, scale), deadlines_s, scale)
        return found[number][0]

    first, last = 0, len(fitting) - 1
    while last - first > 64:
        places = np.unique(np.geomspace(first + 1, last + 1, 24).round().astype(int) - 1).tolist()
        best = min(range(len(places)), key=lambda i: value(places[i]))
        first, last = places[max(best - 1, 0)], places[min(best + 1, len(places) - 1)]
    number = fitting[min(range(first, last + 1), key=value)]
    _, deadlines_s, scale = found[number]
    return _plan(_first(problem, number), budget_s, deadlines_s, scale)


@dataclass(frozen=True, slots=True, eq=False)
class _Slope:
    """log |h'(x)|, which falls, and its inverse, from a table whose nodes crowd towards p = 1/2.

    The table begins at the smallest x that is allowed: what wants less gets that.
    Linear between the nodes. The errors (about 1e-5) move a plan along its optimum, where the bound
    is flat: it loses less than 1e-8. The bound itself never comes from the table.
    """

    edge: float  # the x at which p_1 = 1/2
    log_above: np.ndarray  # log(x - edge), rising
    log_fall: np.ndarray  # -log |h'(x)|, rising

    @classmethod
    def table(cls, problem: DeadlineProblem, budget_s: float) -> "_Slope":
        users, edge = len(problem.users), rate_at(problem, 0.5)
        lowest, most = _lowest_rate(problem), budget_s / problem.scales[0]
        above = np.geomspace(lowest - edge, max(most, 2 * lowest) - edge, _NODES)
        below, density = log_not_reached(edge + above, problem.layers)
        chances = np.minimum(np.exp(users * below), MISSED_MOST)
        # d/dx (1 + p)/(1 - 2p) = 3 p' / (1 - 2p)^2 with p = Q^U
        terms = math.log(3 * users) + (users - 1) * below + density - 2 * np.log1p(-2 * chances)
        return cls(edge, np.log(above), np.maximum.accumulate(-np.logaddexp.reduce(terms, axis=1)))

    def fall(self, rate: float) -> float:
        above = math.log(max(rate - self.edge, 1e-300))
        return float(np.interp(above, self.log_above, self.log_fall))

    def rates(self, fall: np.ndarray) -> np.ndarray:
        """The x with this slope, or the nearest in the table."""
        found: np.ndarray = self.edge + np.exp(np.interp(fall, self.log_fall, self.log_above))
        return found


def _solve(problem: DeadlineProblem, budget_s: float, slope: _Slope) -> tuple[np.ndarray, float]:
    """Deadlines and scale. All values are divided by K max_t a_t, so that the first weight is 1."""
    floor_s, (scale_min, scale_max) = _floor_s(problem), problem.scales
    log_weights = problem.log_weights()
    order = np.argsort(-log_weights, kind="stable")
    log_weights = log_weights[order] - log_weights[order[0]]
    weights = np.exp(log_weights)
    noise = weights.sum() * problem.noise_factor / problem.truncation_factor  # N
    # What is left of the budget when only the first k rounds are above the floor, for every k >= 1.
    shared_s = budget_s - np.arange(problem.rounds - 1, -1, -1) * floor_s

    def at(log_above: float) -> tuple[float, np.ndarray, float]:
        """-log multiplier, x and s, given the x of the round with the largest weight."""
        fall = float(np.interp(log_above, slope.log_above, slope.log_fall))
        free = slope.rates(fall + log_weights)
        # sum max(x_t, floor s) = T_tot s: every guess at k gives an s that is too small but the right.
        s = float((free.cumsum() / shared_s).max())
        return fall, np.maximum(free, floor_s * s), s

    low, high = float(slope.log_above[0]), float(slope.log_above[-1])
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        fall, rates, s = at(middle)
        if s * scale_min > 1:
            too_long = True
        elif s * scale_max < 1:
            too_long = False
        else:
            multiplier = math.exp(-fall)
            floored = weights[rates <= floor_s * s]
            pushed = (
                multiplier - floored * math.exp(-slope.fall(floor_s * s)) if len(floored) else floored
            )
            # d/ds of the best value at s (envelope theorem); it rises with s.
            too_long = noise - multiplier * budget_s + floor_s * float(np.maximum(pushed, 0).sum()) > 0
        low, high = (low, middle) if too_long else (middle, high)
    _, rates, s = at(low)
    scale = min(max(1 / s, scale_min), scale_max)
    deadlines_s = np.empty(problem.rounds)
    deadlines_s[order] = rates / s
    total_s = math.fsum(deadlines_s)
    if total_s > budget_s:
        deadlines_s *= budget_s / total_s * (1 - 1e-15)
    return deadlines_s, scale


def _plan(
    problem: DeadlineProblem, budget_s: float, deadlines_s: np.ndarray, scale: float
) -> DeadlinePlan:
    users = problem.users
    small = scale * np.asarray(users.samples_per_s) * (1 - np.outer(1 / deadlines_s, users.link_s))
    return DeadlinePlan(
        problem,
        budget_s,
        deadlines_s,
        scale,
        batches_by_speed(deadlines_s, scale, users),
        1 - missed_chances(deadlines_s, scale, problem.layers, len(users)),
        distance_bound(problem, deadlines_s, scale),
        bound_by_round(problem, deadlines_s, scale),
        int(np.count_nonzero(small * (1 + TOLERANCE) < 1)),
    )


def _first(problem: DeadlineProblem, rounds: int) -> DeadlineProblem:
    return replace(problem, steps=problem.steps[:rounds])


def _round_s(problem: DeadlineProblem) -> float:
    return max(_floor_s(problem), problem.scales[0] * _lowest_rate(problem))


def _lowest_rate(problem: DeadlineProblem) -> float:
    """x_min: p < 1/2 in all layers, and rate_min where it is set."""
    return max(rate_at(problem, MISSED_MOST), problem.rate_min or 0.0)


def _floor_s(problem: DeadlineProblem) -> float:
    return max(problem.users.link_s) * (1 + LINK_MARGIN)
