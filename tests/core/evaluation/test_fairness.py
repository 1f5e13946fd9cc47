"""Numbers of a metric over clients, by hand."""

import pytest

from fedpace.core.evaluation.fairness import fairness_of, speed_groups
from fedpace.core.evaluation.metric import ACCURACY, LOSS


def test_the_worst_decile_is_by_the_direction_of_the_metric():
    values = [number / 20 for number in range(20)]
    assert fairness_of(ACCURACY, values).worst_decile == pytest.approx(0.025)
    assert fairness_of(LOSS, values).worst_decile == pytest.approx(0.925)
    assert fairness_of(ACCURACY, values).mean == pytest.approx(0.475)
    assert fairness_of(ACCURACY, [0.5, 0.25]).worst_decile == 0.25


def test_the_spread_is_a_standard_deviation_and_who_has_no_value_is_left_out():
    found = fairness_of(ACCURACY, [0.2, None, 0.6, float("nan")], ("slow", "slow", "fast", "fast"))
    assert found.spread == pytest.approx(0.2)
    assert (found.clients, found.groups) == (2, {"slow": 0.2, "fast": 0.6})
    assert fairness_of(ACCURACY, [None]) is None


def test_groups_are_thirds_by_seconds_a_sample():
    assert speed_groups([3.0, 1.0, 2.0]) == ("slow", "fast", "middle")
    assert speed_groups([1.0, 1.0, 9.0, 9.0, 5.0, 5.0]) == (
        "fast",
        "fast",
        "slow",
        "slow",
        "middle",
        "middle",
    )
    assert speed_groups([1.0]) == ("slow",)
    assert speed_groups([]) == ()
