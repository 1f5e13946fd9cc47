"""The solver against trust-constr, brute force and the limits that a plan has to keep."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core.errors import ConfigError
from fedpace.planning.deadline_bound import (
    DeadlineConstants,
    DeadlineProblem,
    DeadlineUsers,
    distance_bound,
)
from fedpace.planning.deadlines import LINK_MARGIN, choose_rounds, plan_deadlines, smallest_budget
from tests.planning.deadline_cases import FLEET, KNOWN, at_random, decaying, oracle, problems, replan
from tests.sizes import sizes


@sizes("count", 5, 50)
def test_the_fast_solver_is_as_good_as_trust_constr(count):
    rng, ended = np.random.default_rng(5), 0
    for _ in range(count):
        problem, budget = at_random(rng, int(rng.integers(4, 9)))
        found, other = plan_deadlines(problem, budget), oracle(problem, budget)
        assert math.isfinite(found.bound)
        assert found.bound <= other * (1 + 1e-6)
        ended += math.isfinite(other)
    assert ended >= 0.8 * count


@sizes("count", 2, 6)
def test_no_point_of_a_fine_grid_is_better_for_two_rounds(count):
    rng = np.random.default_rng(6)
    for _ in range(count):
        problem, budget = at_random(rng, 2)
        found = plan_deadlines(problem, budget)
        floor = max(problem.users.link_s) * (1 + LINK_MARGIN)
        best = math.inf
        for first in np.linspace(floor, budget - floor, 81):
            low, high = problem.scales
            for scale in np.geomspace(low, min(high, 40 * found.scale), 81):
                best = min(
                    best, distance_bound(problem, np.array([first, budget - first]), float(scale))
                )
        assert found.bound <= best * (1 + 1e-9)
        assert best <= found.bound * 1.05


@given(problems)
def test_a_plan_keeps_every_limit(given):
    problem, budget = given
    found = plan_deadlines(problem, budget)
    low, high = problem.scales
    assert math.fsum(found.deadlines_s) <= budget
    assert math.fsum(found.deadlines_s) >= budget * (1 - 1e-9)
    assert found.deadlines_s.min() >= max(problem.users.link_s) * (1 + LINK_MARGIN) * (1 - 1e-9)
    assert low <= found.scale <= high
    assert found.reached.min() > 0.5
    assert math.isfinite(found.bound)


@given(problems, st.floats(-2, 2), st.floats(-2, 2), st.integers(0, 2**32))
def test_no_small_exchange_between_rounds_or_of_the_scale_helps(given, shift, stretch, seed):
    problem, budget = given
    found = plan_deadlines(problem, budget)
    rng, deadlines = np.random.default_rng(seed), found.deadlines_s.copy()
    one, two = rng.integers(0, problem.rounds, 2)
    deadlines[one] += 0.01 * shift * found.deadlines_s.min()
    deadlines[two] -= 0.01 * shift * found.deadlines_s.min()
    low, high = problem.scales
    scale = min(max(found.scale * (1 + 0.01 * stretch), low), high)
    if deadlines.min() >= max(problem.users.link_s) * (1 + LINK_MARGIN):
        assert found.bound <= distance_bound(problem, deadlines, scale) * (1 + 1e-8)


def test_deadlines_fall_with_a_falling_step_and_are_flat_with_a_constant_one():
    convex = replace(KNOWN, convexity=0.0)
    falling = plan_deadlines(DeadlineProblem(8, decaying(40), FLEET, convex), 400).deadlines_s
    assert (np.diff(falling) < 0).all()
    flat = plan_deadlines(DeadlineProblem(8, (0.1,) * 40, FLEET, convex), 400).deadlines_s
    assert np.allclose(flat, 10, rtol=1e-9)
    nearly = plan_deadlines(
        DeadlineProblem(8, (0.1,) * 40, FLEET, replace(KNOWN, convexity=0.01)), 400
    ).deadlines_s
    assert nearly.max() / nearly.min() < 1.01


@given(problems)
def test_a_round_that_weighs_more_gets_a_longer_deadline(given):
    problem, budget = given
    deadlines = plan_deadlines(problem, budget).deadlines_s[np.argsort(problem.log_weights())]
    assert (np.diff(deadlines) >= -1e-9 * budget).all()


@given(problems)
def test_an_infeasible_budget_is_refused_with_the_smallest_that_works(given):
    problem, _ = given
    with pytest.raises(ConfigError, match=r"at least that") as refusal:
        plan_deadlines(problem, smallest_budget(problem) * 0.99)
    named = float(re.search(r"rounds need (\S+) s", str(refusal.value))[1])
    assert math.isfinite(plan_deadlines(problem, named).bound)
    with pytest.raises(ConfigError):
        plan_deadlines(problem, named * 0.999)
    assert math.isfinite(plan_deadlines(problem, smallest_budget(problem)).bound)


def test_the_refusal_says_how_many_rounds_would_fit():
    problem = DeadlineProblem(8, decaying(40), FLEET, KNOWN)
    with pytest.raises(ConfigError, match=r"plan at most 19 rounds"):
        plan_deadlines(problem, smallest_budget(problem) * 19.5 / 40)
    plan_deadlines(replace(problem, steps=problem.steps[:19]), smallest_budget(problem) * 19.5 / 40)
    for wrong in (0.0, -3.0, math.nan, math.inf):
        with pytest.raises(ConfigError, match="finite budget"):
            plan_deadlines(problem, wrong)


@given(problems, st.floats(1e-3, 1e3))
def test_scaling_all_times_scales_the_plan_and_nothing_else(given, factor):
    problem, budget = given
    users = problem.users
    slower = DeadlineUsers(
        tuple(speed / factor for speed in users.samples_per_s),
        tuple(link * factor for link in users.link_s),
    )
    limit = None if problem.scale_max is None else problem.scale_max * factor
    found = plan_deadlines(problem, budget)
    other = plan_deadlines(replace(problem, users=slower, scale_max=limit), budget * factor)
    assert np.allclose(other.deadlines_s, found.deadlines_s * factor, rtol=1e-5)
    assert other.scale == pytest.approx(found.scale * factor, rel=1e-5)
    assert other.bound == pytest.approx(found.bound, rel=1e-9)
    assert np.allclose(other.reached, found.reached, atol=1e-5)
    assert np.abs(other.batches - found.batches).max() <= 1 + 1e-4 * found.batches.max()


@given(problems, st.integers(1, 500))
def test_batches_follow_speed_and_link_between_one_sample_and_all_data(given, data):
    problem, budget = given
    users = replace(problem.users, data=(data,) * len(problem.users))
    if data / max(users.samples_per_s) < problem.scales[0]:
        return
    found = plan_deadlines(replace(problem, users=users), budget)
    raised = 0
    for deadline, row in zip(found.deadlines_s, found.batches.tolist(), strict=True):
        for speed, link, batch in zip(users.samples_per_s, users.link_s, row, strict=True):
            exact = found.scale * speed * (1 - link / deadline)
            raised += exact < 1 - 1e-6
            assert batch == min(max(math.floor(exact * (1 + 1e-9)), 1), data)
    assert found.raised >= raised


def test_the_scale_stops_where_every_batch_is_all_data():
    users = replace(FLEET, data=(100,) * len(FLEET), link_s=(0.0,) * len(FLEET))
    found = plan_deadlines(DeadlineProblem(8, decaying(10), users, KNOWN), 1e7)
    assert found.scale == pytest.approx(100 / 10)
    assert (found.batches == 100).all()


@given(problems, st.floats(1, 10))
def test_a_larger_budget_never_worsens_the_bound(given, factor):
    problem, budget = given
    assert plan_deadlines(problem, budget * factor).bound <= plan_deadlines(problem, budget).bound * (
        1 + 1e-9
    )


@given(problems, st.integers(2, 4))
def test_more_users_of_the_same_kind_never_worsen_the_bound(given, copies):
    problem, budget = given
    users = DeadlineUsers(
        tuple(problem.users.samples_per_s) * copies, tuple(problem.users.link_s) * copies
    )
    noise = tuple(np.broadcast_to(problem.constants.noise, len(problem.users)).tolist()) * copies
    more = replace(problem, users=users, constants=replace(problem.constants, noise=noise))
    assert plan_deadlines(more, budget).bound <= plan_deadlines(problem, budget).bound * (1 + 1e-9)


def test_constants_that_are_wrong_by_two_move_the_plan_moderately():
    problem = DeadlineProblem(11, decaying(100), FLEET, KNOWN)
    found = plan_deadlines(problem, 1000)
    for name in ("convexity", "smoothness", "gradient", "noise", "heterogeneity", "distance"):
        for factor in (0.5, 2.0):
            wrong = replace(KNOWN, **{name: getattr(KNOWN, name) * factor})
            other = plan_deadlines(replace(problem, constants=wrong), 1000)
            assert 0.9 < other.scale / found.scale < 1.11
            assert np.abs(other.deadlines_s / found.deadlines_s - 1).max() < 0.03
            lost = distance_bound(problem, other.deadlines_s, other.scale) / found.bound - 1
            assert -1e-9 <= lost < 0.001


@given(problems, st.floats(0.1, 10))
def test_only_ratios_of_the_constants_shape_a_plan(given, factor):
    problem, budget = given
    known = problem.constants
    noise = tuple(factor * np.broadcast_to(known.noise, len(problem.users)))
    other = replace(
        problem,
        constants=DeadlineConstants(known.convexity, 1.0, known.gradient * factor, noise, 0.0, 0.0),
        local_steps=1,
    )
    found, same = plan_deadlines(problem, budget), plan_deadlines(other, budget)
    assert np.allclose(found.deadlines_s, same.deadlines_s, rtol=1e-5)
    assert found.scale == pytest.approx(same.scale, rel=1e-5)


def test_the_number_of_rounds_is_the_best_of_all():
    known = replace(KNOWN, convexity=0.3, distance=100.0, noise=20.0)
    problem = DeadlineProblem(6, (0.1,) * 300, FLEET, known)
    tried = {}
    for rounds in range(1, 301):
        part = replace(problem, steps=problem.steps[:rounds])
        if smallest_budget(part) <= 300:
            tried[rounds] = plan_deadlines(part, 300).bound
    best = min(tried, key=tried.get)
    assert 5 < best < 250
    assert choose_rounds(problem, 300).problem.rounds == best
    assert choose_rounds(problem, 300, range(1, 6)).problem.rounds == 5
    chosen = choose_rounds(problem, 300, range(10, 301, 50))
    assert chosen.bound == min(tried[r] for r in range(10, 301, 50) if r in tried)


def test_rounds_that_cannot_be_are_refused():
    problem = DeadlineProblem(6, decaying(30), FLEET, KNOWN)
    for rounds in ([], [0, 1], [31]):
        with pytest.raises(ConfigError, match="between 1 and"):
            choose_rounds(problem, 300, rounds)
    with pytest.raises(ConfigError, match="20 rounds need"):
        choose_rounds(problem, 1.5, [20, 25])


@settings(max_examples=30)
@given(problems, st.floats(0, 1))
def test_replanning_without_news_repeats_what_is_left_of_the_plan(given, part):
    problem, budget = given
    problem = replace(problem, constants=replace(problem.constants, noise=0.0))  # m stays at its least
    found = plan_deadlines(problem, budget)
    done = int(part * (problem.rounds - 1))
    again = replan(found, done, math.fsum(found.deadlines_s[done:]))
    assert np.allclose(again.deadlines_s, found.deadlines_s[done:], rtol=1e-4)
    assert again.bound == pytest.approx(found.bound, rel=1e-8)


def test_replanning_uses_current_estimates_and_what_is_left():
    found = plan_deadlines(DeadlineProblem(8, decaying(20), FLEET, KNOWN), 200)
    assert replan(found, 5, 150).bound <= found.bound * 1.01
    slower = replace(FLEET, samples_per_s=tuple(speed / 2 for speed in FLEET.samples_per_s))
    other = replan(found, 5, 120, users=slower, constants=replace(KNOWN, distance=1.0))
    assert other.problem.rounds == 15
    assert math.fsum(other.deadlines_s) <= 120
    assert other.problem.users == slower
    assert other.distances[0] == 1.0


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (
            lambda: DeadlineUsers((1.0, 0.0), (0.0, 0.0)),
            "samples_per_s has 0; every one has to be above 0",
        ),
        (
            lambda: DeadlineUsers((1.0, 2.0), (0.0, -1.0)),
            "link_s has -1; every one has to be at least 0",
        ),
        (lambda: DeadlineUsers((1.0, 2.0), (0.0,)), "2 speeds, 1 link times"),
        (lambda: DeadlineUsers((1.0, 2.0), (0.0, 0.0), (0, 1)), "data has 0"),
        (lambda: DeadlineUsers((1.0,), (0.0,)), "give at least 2"),
        (lambda: DeadlineUsers((1.0, math.nan), (0.0, 0.0)), "give a list of finite numbers"),
        (lambda: replace(KNOWN, gradient=0.0), "gradient is 0.0; set it above 0"),
        (lambda: replace(KNOWN, convexity=-1.0), "convexity is -1.0; set it to 0 or more"),
        (lambda: replace(KNOWN, noise=(-1.0, 1.0)), "noise has -1"),
        (lambda: DeadlineProblem(0, (0.1,), FLEET, KNOWN), "layers is 0"),
        (lambda: DeadlineProblem(2, (), FLEET, KNOWN), "steps is"),
        (lambda: DeadlineProblem(2, (20.0,), FLEET, KNOWN), "not below 1"),
        (lambda: DeadlineProblem(2, (0.1,), FLEET, replace(KNOWN, noise=(1.0, 1.0))), "2 entries"),
        (lambda: DeadlineProblem(2, (0.1,), FLEET, KNOWN, scale_max=1e-6), "is empty or not positive"),
        (lambda: DeadlineProblem(2, (0.1,), FLEET, KNOWN, scale_min=0.0), "is empty or not positive"),
        (
            lambda: DeadlineProblem(2, (0.1,), FLEET, KNOWN, rate_min=0.0),
            "rate_min is 0.0; set it above 0",
        ),
        (lambda: DeadlineProblem(2, (0.1,), FLEET, KNOWN, rate_min=math.inf), "rate_min is"),
    ],
)
def test_what_cannot_be_used_is_refused(wrong, says):
    with pytest.raises(ConfigError, match=re.escape(says)):
        wrong()
