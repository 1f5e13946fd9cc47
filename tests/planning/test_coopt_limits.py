"""Budgets that no plan can keep: who is to blame, and what would be enough."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from fedpace.core.errors import ConfigError
from fedpace.planning.coopt import fitting_rounds, plan_coopt, plan_gpu, plan_next, plan_uniform
from fedpace.planning.coopt_bound import CooptBudget, CooptClients, CooptProblem
from tests.planning.coopt_cases import FLEET, KNOWN, problems, smallest_deadline, smallest_money

PLANNERS = (plan_coopt, plan_next, plan_uniform)


def limited(problem, **limits):
    return replace(
        problem, budget=replace(problem.budget, **{"deadline_s": None, "money": None, **limits})
    )


@given(problems)
def test_a_deadline_that_is_too_short_is_refused_with_the_smallest_that_works(problem):
    least = smallest_deadline(problem)
    for planner in PLANNERS:
        with pytest.raises(ConfigError, match="give at least that") as refusal:
            planner(limited(problem, deadline_s=least * 0.999))
        client, named = re.search(r"client (\d+) needs (\S+) s", str(refusal.value)).groups()
        assert planner(limited(problem, deadline_s=float(named))).tau == 1
        assert planner(limited(problem, deadline_s=least)).tau == 1
        with pytest.raises(ConfigError):
            planner(limited(problem, deadline_s=float(named) * (1 - 3e-5)))
        clients = problem.clients
        needed = (1 + clients.extra) / np.array(clients.samples_per_s) + clients.link_s
        assert int(client) == int(needed.argmax())


@given(problems)
def test_too_little_money_is_refused_with_the_smallest_sum_that_works(problem):
    least = smallest_money(problem)
    for planner in PLANNERS:
        with pytest.raises(ConfigError, match="give at least that") as refusal:
            planner(limited(problem, money=least * 0.999))
        named = re.search(r"clients cost ([^\s,]+),", str(refusal.value))[1]
        assert planner(limited(problem, money=float(named))).batches.min() == 1
        assert planner(limited(problem, money=least)).tau == 1
        with pytest.raises(ConfigError):
            planner(limited(problem, money=float(named) * (1 - 3e-5)))


@given(problems)
def test_the_rounds_that_fit_can_be_planned_and_one_more_cannot(problem):
    tight = limited(
        problem, deadline_s=smallest_deadline(problem) * 0.7, money=smallest_money(problem) * 0.6
    )
    fit = fitting_rounds(tight)
    if fit:
        plan_coopt(replace(tight, budget=replace(tight.budget, rounds=fit)))
    with pytest.raises(
        ConfigError, match=f"plan at most {fit} rounds" if fit else "give at least that"
    ):
        plan_coopt(replace(tight, budget=replace(tight.budget, rounds=fit + 1)))
    assert fitting_rounds(limited(problem)) == problem.budget.rounds


def test_the_refusals_say_why():
    problem = CooptProblem(FLEET, KNOWN, CooptBudget(40, deadline_s=50.0))
    with pytest.raises(ConfigError) as refusal:
        plan_coopt(problem)
    assert str(refusal.value) == (
        "the deadline is 50 s, but client 1 needs 82 s for 40 rounds of 1 local step with one sample, "
        "80 s of it for its link; give at least that, or plan at most 24 rounds, or leave it out"
    )
    problem = replace(problem, budget=CooptBudget(40, deadline_s=30.0), tau_min=2)
    with pytest.raises(ConfigError, match=r"needs 84 s .* 2 local steps .*\(1 more are late as well\)"):
        plan_coopt(problem)
    problem = CooptProblem(FLEET, KNOWN, CooptBudget(40, None, 20.0, (0.1, 0.1, 0.5, 0.1), 0.25))
    with pytest.raises(ConfigError) as refusal:
        plan_coopt(problem)
    assert str(refusal.value) == (
        "the money is 20, but 40 rounds of 1 local step with one sample for each of 4 clients cost 42, "
        "10 of it for the rounds themselves, client 2 being the dearest at 0.5 a sample; "
        "give at least that, or plan at most 19 rounds"
    )


def test_budgets_that_are_used_up_are_refused_as_well():
    for money in (0.0, -3.0):
        with pytest.raises(ConfigError, match=r"cost 40\.4, "):
            plan_next(CooptProblem(FLEET, KNOWN, CooptBudget(4, None, money, 2.5, 0.1)))
    with pytest.raises(ConfigError, match=r"the money is -1, but .* cost 0,"):
        plan_coopt(CooptProblem(FLEET, KNOWN, CooptBudget(4, None, -1.0)))
    assert plan_coopt(CooptProblem(FLEET, KNOWN, CooptBudget(4, None, 0.0))).round_money == 0
    with pytest.raises(ConfigError, match="the deadline is -2 s"):
        plan_next(CooptProblem(FLEET, KNOWN, CooptBudget(4, -2.0)))
    assert fitting_rounds(CooptProblem(FLEET, KNOWN, CooptBudget(4, -2.0))) == 0
    assert fitting_rounds(CooptProblem(FLEET, KNOWN, CooptBudget(4, None, -2.0))) == 0


def test_a_gpu_is_refused_by_its_own_time_for_a_step():
    problem = CooptProblem(FLEET, KNOWN, CooptBudget(10, deadline_s=25.0))
    with pytest.raises(ConfigError, match="client 3 needs 30 s for 10 rounds"):
        plan_gpu(problem, (0.1, 0.1, 0.1, 3.0))
    assert plan_gpu(problem, (0.1, 0.1, 0.1, 2.0)).tau == 1


@given(problems)
def test_at_the_very_edge_of_the_tolerance_a_plan_is_refused_or_whole(problem):
    seconds = smallest_deadline(problem) / (1 + 1e-9)
    money = smallest_money(problem) / (1 + 1e-9)
    for bits in range(-4, 5):
        for limits in (
            {"deadline_s": seconds * (1 + bits * 2e-16)},
            {"money": money * (1 + bits * 2e-16)},
        ):
            try:
                found = [planner(limited(problem, **limits)) for planner in PLANNERS]
            except ConfigError:
                continue
            assert all(one.batches.min() >= 1 for one in found)


def test_a_fixed_tau_is_planned_only_where_it_fits():
    clients = CooptClients((50, 50), (1.0, 1.0), (10.0, 10.0), (0.0, 0.0))
    problem = CooptProblem(clients, KNOWN, CooptBudget(10, deadline_s=100.0), tau_max=25, tau_min=25)
    found = plan_coopt(problem)
    assert (found.tau, found.batches.tolist(), found.total_s) == (25, [4, 4], 100.0)
    with pytest.raises(ConfigError, match="needs 25 s"):
        plan_coopt(replace(problem, budget=CooptBudget(10, deadline_s=24.0)))
