"""The chance that nobody reaches a layer, for layers of any cost."""

import numpy as np
import pytest
from scipy.special import gammainc

from fedpace.core.model import LayerCost, ModelProfile
from fedpace.planning.deadline_bound import missed_chances_at_rates
from fedpace.planning.reach import finished_chances, missed_chances_of_model


def model(forward, backward):
    """Costs from the input to the output."""
    return ModelProfile(
        tuple(LayerCost(f"l{i}", 4, forward / len(backward), cost) for i, cost in enumerate(backward))
    )


def simulated(forward, backward, step_s, window_s, draws=40_000):
    rng = np.random.default_rng(5)
    total = forward + sum(backward)
    missed = np.ones((draws, len(backward)), dtype=bool)
    for one_s, time_s in zip(step_s, window_s, strict=True):
        times = rng.exponential(np.array(backward[::-1]) / total * one_s, (draws, len(backward)))
        ends = forward / total * one_s + times.cumsum(axis=1)
        missed &= ends[:, ::-1] > time_s
    return missed.mean(axis=0)


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (0.0, [1.0, 1.0, 1.0, 1.0]),
        (3.0, [1.0, 4.0, 2.0, 0.5]),
        (0.0, [10.0, 0.001, 5.0, 0.002, 1.0]),
        (2.0, [0.01, 6.0, 0.01]),
    ],
)
def test_it_agrees_with_simulation(forward, backward):
    step_s, window_s = np.array([1.0, 2.0, 3.0]), np.array([0.7, 1.1, 1.2])
    found = missed_chances_of_model(model(forward, backward), step_s, window_s)
    expected = simulated(forward, backward, step_s, window_s)
    # Layers that are taken to be steady are off by their own small cost.
    assert found == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(40_000) + 0.005)


def test_equal_layers_and_a_free_forward_pass_are_lemma_1():
    step_s, window_s = np.array([1.0, 2.0]), np.array([0.8, 1.0])
    found = missed_chances_of_model(ModelProfile.even(6, 600, forward_share=0.0), step_s, window_s)
    assert found == pytest.approx(missed_chances_at_rates(6 * window_s / step_s, 6), rel=1e-12)


def test_equal_rates_are_an_erlang_distribution():
    windows = np.array([0.5, 2.0, 30.0])
    found = finished_chances(np.full(5, 2.0), windows)
    for count in range(1, 6):
        expected = gammainc(count, windows / 0.5)
        assert found[:, count - 1] == pytest.approx(expected, abs=1e-12)


def test_a_window_without_time_reaches_nothing():
    uneven = model(1.0, [1.0, 2.0, 3.0])
    assert missed_chances_of_model(uneven, np.array([1.0]), np.array([-1.0])).tolist() == [
        1.0,
        1.0,
        1.0,
    ]
    assert missed_chances_of_model(uneven, np.array([1.0]), np.array([0.0])).tolist() == [1.0, 1.0, 1.0]
    assert missed_chances_of_model(uneven, np.array([1.0]), np.array([1e4])) == pytest.approx(
        [0.0] * 3, abs=1e-9
    )
