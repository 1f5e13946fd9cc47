"""Batches that share a sum, against handing samples out one at a time and real numbers."""

import math

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, brentq, minimize

from fedpace.planning.coopt_shares import share_samples
from tests.planning.coopt_cases import one_at_a_time


def a_case(rng, number, kind):
    weights = (
        rng.lognormal(3, 3, number),
        rng.integers(0, 4, number) * 1.0,  # ties, and clients without variance
        np.full(number, 7.0),
        rng.choice([2.0, 6.0, 12.0, 24.0], number),  # equal gains of different batches
    )[kind]
    most = np.floor(rng.uniform(1, 2 + 300 * rng.random(), number))
    return weights, most


@pytest.mark.parametrize("kind", range(4))
def test_the_batches_are_those_of_handing_samples_out_one_at_a_time(kind):
    rng = np.random.default_rng(kind)
    for _ in range(80):
        weights, most = a_case(rng, int(rng.integers(1, 60)), kind)
        costs = np.ones(len(weights))
        budget = float(rng.integers(len(weights), int(most.sum()) + 2))
        guess = None if rng.random() < 0.5 else float(10 ** rng.uniform(-12, 6))
        found, slack, _ = share_samples(weights, costs, most, budget, guess)
        assert found.tolist() == one_at_a_time(weights, costs, most, budget)
        assert slack == 0


def test_many_equal_clients_are_served_in_their_order():
    weights, costs = np.full(5000, 3.0), np.ones(5000)
    found, _, _ = share_samples(weights, costs, np.full(5000, 90.0), 5000 * 40.0 + 1234)
    assert found.tolist() == [41] * 1234 + [40] * 3766


@pytest.mark.parametrize("classes", [True, False])
def test_with_several_prices_what_does_not_fit_is_passed_over(classes):
    rng = np.random.default_rng(4)
    for _ in range(150):
        weights, most = a_case(rng, int(rng.integers(1, 50)), 0)
        number = len(weights)
        costs = rng.choice([1.0, 2.0, 5.0], number) if classes else rng.lognormal(0, 1, number)
        budget = float(costs.sum() + rng.random() * (costs @ most - costs.sum()))
        found, slack, _ = share_samples(weights, costs, most, budget)
        assert found.tolist() == one_at_a_time(weights, costs, most, budget)
        assert not ((found < most) & (costs <= budget - costs @ found - 1e-9)).any()
        best = (weights / found).sum() - slack
        assert math.isclose(best, with_a_part_of_a_sample(weights, costs, most, budget), rel_tol=1e-9)


def with_a_part_of_a_sample(weights, costs, most, budget):
    """What no whole batches can beat: the first sample that does not fit is bought in part."""
    units = [
        (w / c / (s * (s + 1)), c)
        for w, c, m in zip(weights, costs, most, strict=True)
        for s in range(1, int(m))
    ]
    total, left = weights.sum(), budget - costs.sum()
    for gain, cost in sorted(units, reverse=True):
        total -= gain * min(cost, left)
        left -= min(cost, left)
    return total


def test_who_costs_nothing_gets_the_most_and_the_others_share_all():
    weights, costs = np.array([1.0, 50.0, 40.0, 0.0]), np.array([0.0, 1.0, 1.0, 0.0])
    found, slack, _ = share_samples(weights, costs, np.full(4, 30.0), 19.0)
    assert found.tolist() == [30, 10, 9, 1]
    assert slack == 0


def test_real_batches_are_better_by_less_than_rounding_down_loses():
    rng = np.random.default_rng(6)
    for number in (5, 300, 20_000):
        weights, costs = rng.lognormal(3, 2, number), np.ones(number)
        most = np.floor(rng.lognormal(4, 1, number)) + 1
        budget = float(np.floor(0.4 * most.sum()))
        shares = np.sqrt(weights)

        def over(scale, shares=shares, most=most, budget=budget):
            return np.clip(scale * shares, 1, most).sum() - budget

        scale = brentq(over, 0, most.max() / shares.min(), xtol=1e-300, rtol=1e-14, maxiter=1000)
        real = np.clip(scale * shares, 1, most)
        found, _, _ = share_samples(weights, costs, most, budget)
        best, ours = (weights / real).sum(), (weights / found).sum()
        assert best * (1 - 1e-9) <= ours <= (weights / np.floor(real * (1 + 1e-12))).sum()
        assert np.abs(found - real).max() <= max(2, 0.02 * real.max())


def test_slsqp_finds_no_better_real_batches_and_none_much_worse():
    rng = np.random.default_rng(7)
    for prices in (1, 3):
        weights, most = rng.lognormal(3, 1, 12) * 1e3, np.floor(rng.uniform(200, 900, 12))
        costs = rng.choice([1.0, 2.0, 5.0], 12) if prices == 3 else np.ones(12)
        budget = 0.4 * float(costs @ most)
        real = minimize(
            lambda s, weights=weights: (weights / s).sum() / 100,
            np.full(12, 50.0),
            jac=lambda s, weights=weights: -weights / s**2 / 100,
            bounds=[(1, m) for m in most],
            constraints=LinearConstraint(costs[None], 0, budget),
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        assert real.success
        found, slack, _ = share_samples(
            weights, costs, most, math.floor(budget) if prices == 1 else budget
        )
        ours = (weights / found).sum()
        assert real.fun * 100 * (1 - 1e-6) <= ours <= real.fun * 100 * (1 + 1e-3)
        assert slack <= 1e-3 * ours


def test_rounding_real_shares_down_as_algorithm_1_does_is_not_optimal():
    roots = np.array([400.0] + [1.45] * 20)  # the shares of 429 samples are exactly these
    weights, most = roots**2, np.full(21, 1000.0)
    rounded = np.floor(roots)
    for _ in range(429 - int(rounded.sum())):
        rounded[np.argmax(weights / (rounded * (rounded + 1)))] += 1
    found, _, _ = share_samples(weights, np.ones(21), most, 429.0)
    assert found.sum() == rounded.sum() == 429
    assert (rounded[0], found[0]) == (400, 390)
    assert (weights / found).sum() < (weights / rounded).sum()
