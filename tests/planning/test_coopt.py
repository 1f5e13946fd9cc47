"""CoOptFL's plans against brute force, scipy and what must hold of every plan."""

import doctest
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from fedpace.core.errors import ConfigError
from fedpace.planning import coopt
from fedpace.planning.coopt import plan_coopt, plan_gpu, plan_next, plan_uniform
from fedpace.planning.coopt_bound import CooptBudget, CooptClients, CooptProblem, loss_bound
from tests.planning.coopt_cases import (
    FLEET,
    KNOWN,
    as_in_the_paper,
    at_random,
    brute_force,
    kept,
    problems,
    smallest_deadline,
    smallest_money,
)

seeds = st.integers(0, 2**32)


def small(rng, prices=1):
    return at_random(rng, int(rng.integers(1, 4)), data=7, prices=prices, tau_max=5)


def test_no_whole_batches_and_no_tau_are_better():
    rng, inner, busy = np.random.default_rng(1), 0, 0
    for _ in range(200):
        problem = small(rng)
        found = plan_coopt(problem)
        assert math.isclose(found.bound, brute_force(problem), rel_tol=1e-9)
        assert found.excess == 0
        inner += 1 < found.tau < 5
        busy += (found.batches < found.largest).any()
    assert inner > 20  # not only corners are compared
    assert busy > 25


@pytest.mark.parametrize("prices", [3, 0])
def test_with_several_prices_the_excess_is_never_understated(prices):
    rng, equal = np.random.default_rng(2), 0
    for _ in range(100):
        problem = small(rng, prices)
        found, best = plan_coopt(problem), brute_force(problem)
        assert (found.bound - found.excess) * (1 - 1e-9) <= best <= found.bound * (1 + 1e-9)
        equal += math.isclose(found.bound, best, rel_tol=1e-9)
    assert equal >= 70


def test_the_next_round_is_planned_by_the_marginal_bound():
    rng, skipped = np.random.default_rng(3), 0
    for number in range(100):
        problem = small(rng) if number % 2 else at_random(rng, 8, prices=1)
        found, all_tried = plan_next(problem), plan_coopt(problem, horizon=1)
        assert (found.tau, found.bound) == (all_tried.tau, all_tried.bound)
        assert (found.batches == all_tried.batches).all()
        if number % 2:
            assert math.isclose(found.bound, brute_force(problem, rounds=1), rel_tol=1e-9)
        tried = ~np.isnan(found.bounds)
        assert (found.bounds[tried] == all_tried.bounds[tried]).all()
        skipped += (~tried).sum()
    assert skipped > 100


def test_with_a_gpu_time_limits_only_the_local_steps():
    rng = np.random.default_rng(4)
    for _ in range(60):
        problem = small(rng)
        steps_s = rng.uniform(0.3, 1) / np.array(problem.clients.samples_per_s)
        found = plan_gpu(problem, tuple(steps_s))
        assert math.isclose(found.bound, brute_force(problem, compute_s=steps_s[None]), rel_tol=1e-9)
        assert kept(problem, found.tau, found.batches[None], steps_s[None]).all()
        slow = replace(problem.clients, samples_per_s=(1e-9,) * len(problem.clients))
        assert plan_gpu(replace(problem, clients=slow), tuple(steps_s)).tau == found.tau
    budget = CooptBudget(10, deadline_s=100.0)
    found = plan_gpu(CooptProblem(FLEET, KNOWN, budget), 1.0)
    assert found.taus.tolist() == list(range(1, 9))  # client 1 has 8 of 10 seconds for steps of one
    assert found.batches.tolist() == list(FLEET.samples)
    assert found.round_s == found.tau + 2.0
    for wrong in (0.0, math.nan, (1.0, 1.0)):
        with pytest.raises(ConfigError, match="give seconds, finite and above 0"):
            plan_gpu(CooptProblem(FLEET, KNOWN, budget), wrong)


def real_batch(problem, tau):
    """Theorem 2's s(tau) for a real tau, with the K of (9) and the tolerance of budgets."""
    budget, clients, a_round = problem.budget, problem.clients, (1 + 1e-9) / problem.budget.rounds
    most = [float(min(clients.samples))]
    if budget.money is not None:
        per_round = budget.money * a_round - budget.round_cost
        most.append(per_round / (budget.sample_cost * tau * len(clients)))
    if budget.deadline_s is not None:
        extra = clients.extra_steps or (0.0,) * len(clients)
        most += [
            p * (budget.deadline_s * a_round - t) / (tau + e)
            for p, t, e in zip(clients.samples_per_s, clients.link_s, extra, strict=True)
        ]
    return min(most)


@given(seeds, st.integers(1, 12))
def test_one_batch_for_all_is_best_over_every_tau(seed, number):
    problem = at_random(np.random.default_rng(seed), number, tau_max=30)
    fits = [tau for tau in range(1, 31) if real_batch(problem, tau) >= 1 - 1e-12]
    ones = np.ones(number)
    real, whole = plan_uniform(problem, whole=False), plan_uniform(problem)
    assert real.taus.tolist() == whole.taus.tolist() == fits
    best = min(as_in_the_paper(problem, tau, real_batch(problem, tau) * ones) for tau in fits)
    assert math.isclose(np.min(real.bounds), best, rel_tol=1e-9)
    assert real.batches.tolist() == [math.floor(real_batch(problem, real.tau) * (1 + 1e-12))] * number
    assert math.isclose(real.bound, loss_bound(problem, real.tau, real.batches), rel_tol=1e-12)
    best = min(
        as_in_the_paper(problem, tau, math.floor(real_batch(problem, tau) * (1 + 1e-12)) * ones)
        for tau in fits
    )
    assert math.isclose(whole.bound, best, rel_tol=1e-9)
    assert whole.bound <= real.bound * (1 + 1e-12)
    assert plan_coopt(problem).bound <= whole.bound * (1 + 1e-12)


def test_one_batch_for_all_has_the_tau_beside_the_zero_of_the_derivative():
    """(13) and (14): f is convex here, so that its minimum over real tau has the best at its side."""
    for rounds in (20, 60, 150, 400):
        budget = CooptBudget(rounds, rounds * 300.0, rounds * 50.0, sample_cost=0.05, round_cost=1.0)
        problem = CooptProblem(FLEET, KNOWN, budget, tau_max=60)

        def f(tau, problem=problem):
            return as_in_the_paper_real(problem, tau, real_batch(problem, tau))

        zero = minimize_scalar(f, bounds=(1, 60), method="bounded", options={"xatol": 1e-9}).x
        found = plan_uniform(problem, whole=False)
        assert found.tau == min((math.floor(zero), math.ceil(zero)), key=f)
        assert 1 < found.tau < 60


def as_in_the_paper_real(problem, tau, size):
    """(11) for a real tau."""
    known, rounds = problem.constants, problem.budget.rounds
    q, x = known.q, known.step * known.smoothness
    h = known.divergence / known.smoothness * ((1 + x) ** tau - 1) - known.step * known.divergence * tau
    total = sum(FLEET.samples)
    noise = sum(m * d**2 / size for m, d in zip(FLEET.variance, FLEET.samples, strict=True))
    noise *= known.smoothness * known.step**2 * (1 - q**tau) / (2 * total**2 * (1 - q))
    later = (1 - q**rounds) / (1 - q)
    return q ** (rounds * tau) * known.gap + later * (noise + known.quadratic * h**2)


def for_rounds(problem, rounds):
    """The same money and time a round."""
    budget, factor = problem.budget, rounds / problem.budget.rounds
    return replace(
        problem,
        budget=replace(
            budget,
            rounds=rounds,
            deadline_s=None if budget.deadline_s is None else budget.deadline_s * factor,
            money=None if budget.money is None else budget.money * factor,
        ),
    )


@given(seeds, st.integers(1, 10))
def test_the_best_tau_falls_to_one_as_rounds_are_added(seed, number):
    """Remark 1: the gain of more steps falls with K, and what they cost does not."""
    problem = at_random(np.random.default_rng(seed), number)
    problem = replace(problem, constants=replace(problem.constants, curvature=0.3))
    for planner in (plan_coopt, plan_uniform):
        taus = [planner(for_rounds(problem, rounds)).tau for rounds in (1, 3, 10, 50, 300, 2000, 10**7)]
        assert taus == sorted(taus, reverse=True)
        assert taus[-1] == 1


def test_the_best_tau_really_falls_with_the_rounds():
    budget = CooptBudget(1, deadline_s=60.0, money=20.0, sample_cost=0.02)
    problem = CooptProblem(FLEET, KNOWN, budget)
    taus = [plan_coopt(for_rounds(problem, rounds)).tau for rounds in (1, 50, 200, 800, 3000, 20000)]
    assert taus == [39, 17, 7, 3, 1, 1]


@given(problems, st.sampled_from((plan_coopt, plan_uniform, plan_next)))
def test_a_plan_keeps_every_limit_and_says_what_it_costs(problem, planner):
    found, budget, clients = planner(problem), problem.budget, problem.clients
    assert found.batches.dtype == np.int64
    assert (found.batches >= 1).all()
    assert (found.batches <= clients.samples).all()
    assert (found.batches <= found.largest).all()
    assert problem.tau_min <= found.tau <= problem.tau_max
    assert kept(problem, found.tau, found.batches[None]).all()
    steps = found.tau + clients.extra
    seconds = steps * found.batches / np.array(clients.samples_per_s) + clients.link_s
    costs = np.broadcast_to(budget.sample_cost, len(clients))
    assert math.isclose(found.round_s, seconds.max(), rel_tol=1e-8)
    assert math.isclose(
        found.round_money, found.tau * (costs @ found.batches) + budget.round_cost, rel_tol=1e-8
    )
    assert budget.deadline_s is None or found.total_s <= budget.deadline_s
    assert budget.money is None or found.total_money <= budget.money
    horizon = 1 if planner is plan_next else None
    assert math.isclose(
        found.bound, loss_bound(problem, found.tau, found.batches, horizon), rel_tol=1e-12
    )


@given(problems)
def test_nothing_that_helps_is_left_over(problem):
    found, budget = plan_coopt(problem), problem.budget
    costs = np.broadcast_to(budget.sample_cost, len(problem.clients))
    left = math.inf
    if budget.money is not None:
        left = (budget.money / budget.rounds - found.round_money) / found.tau
    assert not ((found.batches < found.largest) & (costs < left * (1 - 1e-6))).any()


@given(problems, st.sampled_from((60.0, 1e-3, 1 / 3, 7.3)), st.sampled_from((100.0, 1 / 7, 1.1)))
def test_other_units_of_time_and_money_change_nothing(problem, seconds, coins):
    whole = plan_coopt(problem)
    budget = replace(  # filled to the last bit, where a unit could cost a sample
        problem.budget, deadline_s=whole.total_s or 1e-9, money=whole.total_money or None
    )
    problem, clients = replace(problem, budget=budget), problem.clients
    scaled = CooptProblem(
        replace(
            clients,
            samples_per_s=tuple(p / seconds for p in clients.samples_per_s),
            link_s=tuple(t * seconds for t in clients.link_s),
        ),
        problem.constants,
        replace(
            budget,
            deadline_s=budget.deadline_s * seconds,
            money=None if budget.money is None else budget.money * coins,
            sample_cost=np.multiply(budget.sample_cost, coins).tolist(),
            round_cost=budget.round_cost * coins,
        ),
        problem.tau_max,
    )
    one, two = plan_coopt(problem), plan_coopt(scaled)
    assert (one.tau, one.bound) == (whole.tau, whole.bound)
    assert one.batches.tolist() == whole.batches.tolist()
    assert two.tau == one.tau
    assert math.isclose(two.bound, one.bound, rel_tol=1e-12)
    assert np.isclose(two.bounds, one.bounds, rtol=1e-12).all()
    if np.ndim(budget.sample_cost) == 0:
        assert two.batches.tolist() == one.batches.tolist()


@given(problems, st.lists(st.floats(0, 0.5), min_size=1, max_size=5))
def test_more_money_never_gives_a_larger_bound(problem, steps):
    money = problem.budget.money or 1e3 * smallest_money(problem)
    last = math.inf
    for step in (0.0, *steps):
        money *= 1 + step
        found = plan_coopt(replace(problem, budget=replace(problem.budget, money=money)))
        assert found.bound <= last * (1 + 1e-12)
        last = found.bound
    unlimited = plan_coopt(replace(problem, budget=replace(problem.budget, money=None)))
    assert unlimited.bound <= last * (1 + 1e-12)


@given(problems, st.floats(0, 1))
def test_more_time_never_gives_a_larger_bound(problem, step):
    problem = replace(problem, budget=replace(problem.budget, sample_cost=0.01, money=None))
    deadline_s = 3 * smallest_deadline(problem)
    short, long_ = (
        plan_coopt(replace(problem, budget=replace(problem.budget, deadline_s=s)))
        for s in (deadline_s, deadline_s * (1 + step))
    )
    assert long_.bound <= short.bound * (1 + 1e-12)


def test_large_shares_follow_data_and_the_root_of_variance_over_price():
    clients = CooptClients(
        (10**6,) * 2 + (2 * 10**6,) * 2, (1.0, 4.0, 1.0, 4.0), (1e6,) * 4, (0.0,) * 4
    )
    problem = CooptProblem(clients, KNOWN, CooptBudget(10, None, 1e6, 0.1), tau_max=4, tau_min=4)
    found = plan_coopt(problem).batches
    assert np.allclose(found / found[0], (1, 2, 2, 4), rtol=1e-3)
    priced = replace(problem, budget=CooptBudget(10, None, 1e6, (0.1, 0.4, 0.1, 0.1)))
    found = plan_coopt(priced).batches
    assert np.allclose(found / found[0], (1, 1, 2, 4), rtol=1e-3)


def test_a_batch_is_drawn_from_what_is_stored():
    problem = CooptProblem(FLEET, KNOWN, CooptBudget(10))
    assert plan_coopt(problem).batches.tolist() == [600, 300, 100, 900]
    stored = replace(FLEET, stored=(64, 300, 128, 1))
    assert plan_coopt(replace(problem, clients=stored)).batches.tolist() == [64, 300, 100, 1]


def test_a_client_without_variance_needs_one_sample():
    calm = replace(FLEET, variance=(4.0, 0.0, 9.0, 0.0))
    problem = CooptProblem(calm, KNOWN, CooptBudget(10, None, 50.0, 0.01))
    found = plan_coopt(problem)
    assert found.batches[[1, 3]].tolist() == [1, 1]
    nobody = replace(FLEET, variance=(0.0,) * 4)
    assert plan_coopt(replace(problem, clients=nobody)).batches.tolist() == [1] * 4


def test_the_example_of_the_docstring_holds():
    assert doctest.testmod(coopt).attempted == 5
    assert doctest.testmod(coopt).failed == 0
