import pytest

from fedpace.report.collection import default_targets


def accuracies(summary, *best):
    return {"a": [summary(accuracy=[(0.0, 0.1), (9.0, value)]) for value in best]}


@pytest.mark.parametrize(
    ("best", "expected"), [((0.8,), (0.65, 0.75)), ((0.2, 0.8, 0.9), (0.65, 0.75)), ((0.1,), (0.1,))]
)
def test_without_targets_two_round_ones_below_the_median_best_are_taken(summary, best, expected):
    assert default_targets(accuracies(summary, *best)) == pytest.approx(expected)


def test_runs_that_were_never_tested_have_no_targets(summary):
    assert default_targets({"a": [summary(accuracy=[])]}) == ()
