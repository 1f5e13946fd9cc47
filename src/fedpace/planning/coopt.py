"""CoOptFL, the planner of DYNAMITE: local steps and batches under a deadline and a cost budget.

tau, the local steps of a round, is the same for all clients; s_i, the batch, is the client's own. Both
make a round longer and dearer: more steps come further but drift apart, larger batches are less noisy.
For a given tau (8) and (10) cap every batch and (9) limits their sum, so `coopt_shares` finds the best
batches (Theorem 3); the best tau is found by trying all that the budgets allow (Algorithm 1, line 18).

Differs: (12), (17), (19) and line 2 of Algorithm 1 drop the K of (9): a round can spend R / K - b.
Differs: every tau is tried where the paper solves f'(tau) = 0 (13, 20): no convexity is needed, and a
cap of tau by time (21) is no special case. The h in Corollary 1's f is squared, as in (11).
Differs: a price per client is allowed; shares are then in proportion to D_i sqrt(M_i / a_i).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedpace.core.commands import TOLERANCE
from fedpace.core.errors import ConfigError
from fedpace.planning.checks import read_column, shown
from fedpace.planning.coopt_bound import CooptProblem, bound_terms
from fedpace.planning.coopt_shares import share_samples
from fedpace.planning.deadlines import rounded_up


@dataclass(frozen=True, slots=True, eq=False)
class CooptPlan:
    """Local steps and batches with the smallest bound."""

    problem: CooptProblem
    tau: int
    batches: np.ndarray  # s_i, whole
    largest: np.ndarray  # the batches that time and data would allow with this tau
    bound: float
    excess: float
    """The bound is at most this much above the smallest; 0, so exact, with one price for all."""
    taus: np.ndarray  # those that the budgets allow
    bounds: np.ndarray  # of every tau with its best batches; nan where it was not tried
    round_s: float
    round_money: float

    @property
    def total_s(self) -> float:
        return _within(self.round_s * self.problem.budget.rounds, self.problem.budget.deadline_s)

    @property
    def total_money(self) -> float:
        return _within(self.round_money * self.problem.budget.rounds, self.problem.budget.money)


def plan_coopt(problem: CooptProblem, horizon: int | None = None) -> CooptPlan:
    """The smallest (11) over all tau and whole s_i within the budgets (Theorem 3, Algorithm 1).

    horizon: rounds that the bound looks ahead, None: all. The budgets are for all rounds anyway.

    >>> from fedpace.planning.coopt_bound import CooptBudget, CooptClients, CooptConstants
    >>> clients = CooptClients([600, 300, 100], [4.0, 1.0, 9.0], [50.0, 20.0, 80.0], [1.0, 2.0, 0.5])
    >>> known = CooptConstants(1.0, 5.0, 0.5, 0.3, step=0.01, gap=2.0)
    >>> found = plan_coopt(
    ...     CooptProblem(clients, known, CooptBudget(100, deadline_s=800, money=900, sample_cost=0.02))
    ... )
    >>> found.tau, found.batches.tolist(), round(found.bound, 4)
    (10, [30, 8, 7], 0.0319)
    """
    return _search(problem, _one_sample_s(problem), horizon)


def plan_next(problem: CooptProblem) -> CooptPlan:
    """The plan for the next round by the marginal bound (30); `constants.gap` is the loss of now.

    budget: the rounds that are left, the next one included, and what is left of time and money for
    them. A tau that cannot be the best is not tried.

    Differs: Algorithm 2 gives the planner the number of all rounds with what is left of the budgets.
    """
    return _search(problem, _one_sample_s(problem), horizon=1, all_taus=False)


def plan_gpu(
    problem: CooptProblem, step_s: float | Sequence[float], horizon: int | None = None
) -> CooptPlan:
    """Corollary 1: a local step takes step_s seconds (t_ci, for all or one a client) for any batch.

    Time limits tau, money and data limit the batches; samples_per_s is not used.

    Differs: what the data do not let a client use goes to others, and so does what rounding leaves;
    (19) drops both.
    """
    clients, one = len(problem.clients), isinstance(step_s, int | float | np.number)
    given, what = [step_s] if one else step_s, "seconds, or one number for all"
    steps_s = read_column("step_s", given, what, finite=False)
    fine = np.isfinite(steps_s) & (steps_s > 0)
    if len(steps_s) != (1 if one else clients) or not fine.all():
        raise ConfigError(
            f"step_s is {shown(step_s)}; give seconds, finite and above 0: one number, or one for each "
            f"of the {clients} clients"
        )
    return _search(problem, np.broadcast_to(steps_s, clients), horizon, by_batch=False)


def plan_uniform(problem: CooptProblem, horizon: int | None = None, whole: bool = True) -> CooptPlan:
    """Theorem 2: the best tau with one batch size for all.

        s(tau) = min((R - K b) / (K tau sum_i a_i), min_i p_i (theta - K t_ui) / (K tau), min_i D_i)

    whole: tau is the best for s(tau) rounded down. False: for the real s(tau), and s is rounded down
    only then (14), which can miss a better tau where batches are small; `bounds` has the same s(tau).
    """
    taus, room = _allowed(problem, _one_sample_s(problem))
    clients, price = problem.clients, math.fsum(problem.sample_costs)
    paid = problem.budget.steps_money / price if price > 0 else math.inf
    timely = np.array([(room / (tau + clients.extra)).min() for tau in taus])
    real = np.minimum(np.maximum(np.minimum(paid / taus, timely), 1), clients.largest.min())
    fixed, noise = bound_terms(problem, taus, horizon)
    weight = clients.weights.sum()
    bounds = fixed + noise * weight / (np.floor(real) if whole else real)
    best = int(bounds.argmin())
    size, tau = math.floor(real[best]), int(taus[best])
    return _plan(
        problem,
        tau,
        np.full(len(clients), size, dtype=float),
        np.minimum(clients.largest, np.floor(room / (tau + clients.extra))),
        float(fixed[best] + noise[best] * weight / size),
        0.0,
        (taus, bounds),
        (tau + clients.extra) * size * _one_sample_s(problem),
    )


def fitting_rounds(problem: CooptProblem) -> int:
    """The number of rounds that the budgets allow when every one is as small as can be; 0 if none."""
    return _fitting(problem, float(_needed_s(problem, _one_sample_s(problem)).max()))


def _search(
    problem: CooptProblem,
    one_s: np.ndarray,
    horizon: int | None,
    by_batch: bool = True,
    all_taus: bool = True,
) -> CooptPlan:
    """The best of all tau. one_s: a local step of one sample, or, if not by_batch, of any number."""
    taus, room = _allowed(problem, one_s)
    clients, prices = problem.clients, problem.sample_costs
    weights, data, dearest = clients.weights, clients.largest, float(prices.max())
    money = problem.budget.steps_money if dearest > 0 else math.inf
    spendable = money / taus
    if prices.min() == dearest > 0:  # samples are counted instead of money, which is exact
        prices = np.ones(len(clients))
        spendable = np.maximum(np.floor(money / dearest / taus), len(clients))
    fixed, noise = bound_terms(problem, taus, horizon)
    # No batches are better than real ones without caps (18), nor than the caps without a price.
    sums = np.maximum(np.sqrt(weights * prices).sum() ** 2 / spendable, (weights / data).sum())
    if by_batch:
        sums = np.maximum(sums, taus * (weights / room).sum() + (weights / room * clients.extra).sum())
    hoped = fixed + noise * sums * (1 - TOLERANCE)

    bounds, lowest, unit = np.full(len(taus), np.nan), math.inf, None
    best = (math.inf, problem.tau_max + 1, data, data)
    for place in np.arange(len(taus)) if all_taus else np.argsort(hoped, kind="stable"):
        if not all_taus and hoped[place] > best[0]:
            break
        tau = int(taus[place])
        largest = np.minimum(data, np.floor(room / (tau + clients.extra))) if by_batch else data
        guess = None if unit is None else unit * tau**2  # batches fall like 1 / tau
        batches, slack, level = share_samples(weights, prices, largest, float(spendable[place]), guess)
        unit = None if level is None else level / tau**2
        total = float((weights / batches).sum())
        bounds[place] = fixed[place] + noise[place] * total
        lowest = min(lowest, float(fixed[place] + noise[place] * (total - slack)))
        best = min(best, (float(bounds[place]), tau, batches, largest), key=lambda found: found[:2])
    found, tau, batches, largest = best
    compute_s = (tau + clients.extra) * (batches * one_s if by_batch else one_s)
    excess = max(found - lowest, 0.0) if math.isfinite(found) else 0.0
    return _plan(problem, tau, batches, largest, found, excess, (taus, bounds), compute_s)


def _plan(
    problem: CooptProblem,
    tau: int,
    batches: np.ndarray,
    largest: np.ndarray,
    value: float,
    excess: float,
    tried: tuple[np.ndarray, np.ndarray],
    compute_s: np.ndarray,
) -> CooptPlan:
    budget, rounds = problem.budget, problem.budget.rounds
    round_s = float((compute_s + problem.clients.link_s).max())
    round_money = tau * float((problem.sample_costs * batches).sum()) + budget.round_cost
    return CooptPlan(
        problem,
        tau,
        batches.astype(np.int64),
        largest.astype(np.int64),
        value,
        excess,
        *tried,
        _within(round_s, None if budget.deadline_s is None else budget.deadline_s / rounds),
        _within(round_money, None if budget.money is None else budget.money / rounds),
    )


def _allowed(problem: CooptProblem, one_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Every tau that the budgets allow, and how many one_s every client has time for in a round."""
    budget, clients = problem.budget, problem.clients
    rounds, costs = budget.rounds, problem.sample_costs
    needed_s, needed = _needed_s(problem, one_s), _needed_money(problem)
    slowest, dearest = int(needed_s.argmax()), int(costs.argmax())
    fit = _fitting(problem, float(needed_s[slowest]))
    fewer = f", or plan at most {fit} rounds" if fit else ""
    work = f"{rounds} rounds of {problem.tau_min} local step{'s' * (problem.tau_min > 1)}"
    if needed_s[slowest] > budget.round_limit_s:
        late = int(np.count_nonzero(needed_s > budget.round_limit_s)) - 1
        others = f" ({late} more are late as well)" if late else ""
        raise ConfigError(
            f"the deadline is {budget.deadline_s:g} s, but client {slowest} needs "
            f"{_up(rounds * float(needed_s[slowest]))} s for {work} with one sample, "
            f"{rounds * clients.link_s[slowest]:g} s of it for its link{others}; "
            f"give at least that{fewer}, or leave it out"
        )
    if needed > budget.steps_money + budget.round_cost:
        who = f", client {dearest} being the dearest at {costs[dearest]:g} a sample"
        raise ConfigError(
            f"the money is {budget.money:g}, but {work} with one sample for each of {len(clients)} "
            f"clients cost {_up(rounds * needed)}, {rounds * budget.round_cost:g} of it for the rounds "
            f"themselves{who if costs.min() < costs[dearest] else ''}; give at least that{fewer}"
        )
    room = (budget.round_limit_s - np.asarray(clients.link_s, dtype=float)) / one_s
    price = math.fsum(costs)
    most = min(
        float((room - clients.extra).min()), budget.steps_money / price if price > 0 else math.inf
    )
    last = max(math.floor(min(most, problem.tau_max)), problem.tau_min)
    return np.arange(problem.tau_min, last + 1), np.maximum(room, last + clients.extra)


def _one_sample_s(problem: CooptProblem) -> np.ndarray:
    return 1 / np.asarray(problem.clients.samples_per_s, dtype=float)


def _needed_s(problem: CooptProblem, one_s: np.ndarray) -> np.ndarray:
    """The shortest round of every client."""
    steps = problem.tau_min + problem.clients.extra
    seconds: np.ndarray = steps * one_s + np.asarray(problem.clients.link_s, dtype=float)
    return seconds


def _needed_money(problem: CooptProblem) -> float:
    """The cheapest round."""
    return problem.tau_min * math.fsum(problem.sample_costs) + problem.budget.round_cost


def _fitting(problem: CooptProblem, needed_s: float) -> int:
    budget, needed = problem.budget, _needed_money(problem)
    number = float(budget.rounds)
    if budget.deadline_s is not None:
        number = min(number, budget.deadline_s * (1 + TOLERANCE) / needed_s)
    if budget.money is not None and (needed > 0 or budget.money < 0):
        number = min(number, budget.money * (1 + TOLERANCE) / needed if needed > 0 else 0)
    return max(math.floor(number), 0)


def _within(value: float, limit: float | None) -> float:
    """Without the last bits above the limit that the tolerance allows."""
    return value if limit is None or value > limit * (1 + 2 * TOLERANCE) else min(value, limit)


def _up(value: float) -> str:
    return rounded_up(value) if value > 0 else "0"
