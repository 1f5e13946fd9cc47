"""Plans with a smallest rate, and how many rounds a budget allows."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.errors import ConfigError
from fedpace.planning.deadline_bound import DeadlineProblem
from fedpace.planning.deadlines import choose_rounds, fitting_rounds, plan_deadlines, smallest_budget
from tests.planning.deadline_cases import FLEET, KNOWN, decaying, oracle, problems, replan, with_a_floor


def test_with_a_smallest_rate_the_solver_is_as_good_as_trust_constr():
    rng, ended, held = np.random.default_rng(8), 0, 0
    for _ in range(10):
        problem, budget = with_a_floor(rng, int(rng.integers(3, 7)))
        found, other = plan_deadlines(problem, budget), oracle(problem, budget)
        assert found.bound <= other * (1 + 1e-6)
        ended += math.isfinite(other)
        rates = found.deadlines_s / found.scale
        assert (rates >= problem.rate_min * (1 - 1e-9)).all()
        assert found.bound >= plan_deadlines(replace(problem, rate_min=None), budget).bound * (1 - 1e-9)
        held += np.isclose(rates, problem.rate_min).sum()
    assert ended >= 8
    assert held >= 5  # rounds that wanted less


@given(st.integers(0, 2**32), st.integers(1, 30), st.floats(0.2, 1))
def test_no_round_of_any_plan_goes_below_the_smallest_rate(seed, rounds, part):
    problem, budget = with_a_floor(np.random.default_rng(seed), rounds)
    least = problem.rate_min * (1 - 1e-8)
    found = plan_deadlines(problem, budget)
    chosen = choose_rounds(problem, smallest_budget(problem) * part + found.deadlines_s.max())
    again = replan(found, rounds // 2, math.fsum(found.deadlines_s[rounds // 2 :]))
    for one in (found, chosen, again):
        assert (one.deadlines_s / one.scale >= least).all()
        assert one.scale <= one.problem.scales[1]
        assert math.fsum(one.deadlines_s) <= one.budget_s


def test_a_smallest_rate_that_no_round_wants_to_undercut_changes_nothing():
    problem = DeadlineProblem(8, decaying(20), FLEET, KNOWN)
    free = plan_deadlines(problem, 200)
    rates = free.deadlines_s / free.scale
    idle = plan_deadlines(replace(problem, rate_min=rates.min() * 0.99), 200)
    assert np.allclose(idle.deadlines_s, free.deadlines_s, rtol=1e-4)
    held = plan_deadlines(replace(problem, rate_min=rates.min() * 1.01), 200)
    assert held.bound > free.bound


@given(problems, st.floats(0, 1.2))
def test_the_rounds_that_fit_can_be_planned_and_one_more_cannot(given, part):
    problem, _ = given
    budget = smallest_budget(problem) * part
    fit = fitting_rounds(problem, budget)
    assert 0 <= fit <= problem.rounds
    if fit:
        plan_deadlines(replace(problem, steps=problem.steps[:fit]), budget)
    if fit < problem.rounds:
        with pytest.raises(ConfigError):
            plan_deadlines(replace(problem, steps=problem.steps[: fit + 1]), budget)


def test_rounds_fit_up_to_the_budget_that_the_planner_names():
    problem = DeadlineProblem(8, decaying(40), FLEET, KNOWN, rate_min=8.0)
    assert fitting_rounds(problem, smallest_budget(problem)) == 40
    assert fitting_rounds(problem, smallest_budget(problem) * 19.5 / 40) == 19
    assert fitting_rounds(problem, 1e9) == 40
    assert fitting_rounds(problem, -1.0) == 0
    with pytest.raises(ConfigError, match="give a finite one"):
        fitting_rounds(problem, math.inf)
    with pytest.raises(ConfigError, match=r"a rate T/m of at least 8; .* plan at most 19 rounds"):
        plan_deadlines(problem, smallest_budget(problem) * 19.5 / 40)
