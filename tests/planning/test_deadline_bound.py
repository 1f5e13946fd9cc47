"""The bound and what it is made of, against simulation and against the formulas."""

import math

import numpy as np
import pytest
from hypothesis import given
from scipy.special import gammaincc, pdtr

from fedpace.core.errors import ConfigError
from fedpace.planning.deadline_bound import (
    DeadlineProblem,
    DeadlineUsers,
    batches_by_speed,
    log_not_reached,
    missed_chances,
    missed_chances_at_rates,
)
from fedpace.planning.deadlines import plan_deadlines, smallest_budget
from tests.planning.deadline_cases import FLEET, KNOWN, as_in_the_paper, problems


def test_the_chance_below_a_count_is_the_incomplete_gamma_function():
    rates = np.geomspace(0.01, 300, 50)
    below, density = log_not_reached(rates, 40)
    expected = gammaincc(np.arange(40, 0, -1), rates[:, None])
    assert np.allclose(np.exp(below), expected, rtol=1e-10)
    step = 1e-5 * rates
    falls = (
        np.exp(log_not_reached(rates - step, 40)[0]) - np.exp(log_not_reached(rates + step, 40)[0])
    ) / (2 * step[:, None])
    assert np.allclose(np.exp(density), falls, rtol=1e-5, atol=1e-7)


def test_lemma_1_is_what_poisson_draws_show():
    rng, draws, users, layers = np.random.default_rng(1), 200_000, 5, 6
    for rate in (2.0, 4.0, 7.0):
        depth = rng.poisson(rate, (draws, users)).max(axis=1)
        seen = np.array([(depth < layers + 1 - layer).mean() for layer in range(1, layers + 1)])
        predicted = missed_chances(np.array([3 * rate]), 3.0, layers, users)[0]
        error = np.sqrt(predicted * (1 - predicted) / draws)
        assert (np.abs(seen - predicted) <= 4 * error + 1e-12).all()


def test_lemma_1_is_an_upper_bound_for_exponential_layers_and_whole_batches():
    rng, draws, layers, deadline, scale = np.random.default_rng(2), 50_000, 5, 6.0, 1.7
    sizes = batches_by_speed(np.array([deadline]), scale, FLEET)[0]
    mean_s = sizes / np.array(FLEET.samples_per_s)
    ends = rng.exponential(mean_s[:, None], (draws, len(FLEET), layers)).cumsum(axis=2)
    depth = (ends <= deadline - np.array(FLEET.link_s)[:, None]).sum(axis=2).max(axis=1)
    seen = np.array([(depth < layers + 1 - layer).mean() for layer in range(1, layers + 1)])
    predicted = missed_chances(np.array([deadline]), scale, layers, len(FLEET))[0]
    error = np.sqrt(predicted * (1 - predicted) / draws)
    assert (seen <= predicted + 4 * error).all()
    assert seen[0] > predicted[0] / 3  # and it is not an idle one


def test_users_of_any_rates_miss_a_layer_when_each_of_them_does():
    rates, layers = np.array([0.0, 0.3, 2.0, 5.5, 40.0]), 7
    for chosen in (rates[:1], rates[:3], rates[1:4], rates):
        expected = [
            math.prod(float(pdtr(layers - layer, rate)) for rate in chosen)
            for layer in range(1, layers + 1)
        ]
        assert np.allclose(missed_chances_at_rates(chosen, layers), expected, rtol=1e-12, atol=0)
    assert missed_chances_at_rates(rates[:0], 3).tolist() == [1.0, 1.0, 1.0]  # nobody was asked
    equal = missed_chances_at_rates(np.full(5, 4.0), layers)
    assert np.allclose(equal, missed_chances(np.array([12.0]), 3.0, layers, 5)[0], rtol=1e-12)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ConfigError, match="at least 0"):
            missed_chances_at_rates(np.array([1.0, wrong]), layers)


@given(problems)
def test_the_bound_is_theorem_1(given):
    problem, budget = given
    found = plan_deadlines(problem, budget)
    expected = as_in_the_paper(problem, found.deadlines_s, found.scale)
    assert found.bound == pytest.approx(expected, rel=1e-9)
    assert found.distances[-1] == pytest.approx(expected, rel=1e-9)
    assert found.distances[0] == problem.constants.distance
    chances = [
        gammaincc(problem.layers + 1 - layer, found.deadlines_s / found.scale) ** len(problem.users)
        for layer in range(1, problem.layers + 1)
    ]
    assert np.allclose(found.reached, 1 - np.transpose(chances), rtol=0, atol=1e-9)


@pytest.mark.parametrize("layers", [1, 2, 3, 5, 8, 11, 20, 50, 100, 200])
def test_truncation_is_convex_in_the_deadline(layers):
    for users in (2, 3, 5, 10, 30, 100, 1000, 10_000):
        problem = DeadlineProblem(
            layers, (0.1,), DeadlineUsers((1.0,) * users, (0.0,) * users), KNOWN, scale_min=1.0
        )
        rates = smallest_budget(problem) + np.geomspace(1e-3, 3 * layers + 20, 2000)
        chances = missed_chances(rates, 1.0, layers, users)
        values = ((1 + chances) / (1 - 2 * chances)).sum(axis=1)
        slopes = np.diff(values) / np.diff(rates)
        assert (np.diff(slopes) >= -1e-9 * np.abs(values).max()).all()
        assert (np.diff(slopes)[:100] > 0).all()
