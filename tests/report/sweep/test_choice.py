"""Which setting is the best: by time to targets or by value, whatever diverges or ties."""

from functools import partial

import pytest

from fedpace.core.evaluation.metric import ACCURACY, LOSS
from fedpace.report.sweep.choice import Criterion, best_of_each, score_runs
from tests.report.conftest import make_summary

BY_TIME = Criterion("time", None, (0.5, 0.7))


def run(*accuracy, end_s=100.0, **rest):
    return make_summary(accuracy=[(0.0, 0.1), *accuracy], end_s=end_s, **rest)


def best(groups, criterion, policies=None, seeds=None):
    cells = policies or dict.fromkeys(groups, "p")
    return best_of_each(groups, cells, criterion, seeds)[0]


def test_the_smallest_mean_time_to_all_targets_is_best():
    groups = {
        "slow-then-fast": [run((40.0, 0.5), (50.0, 0.7))],
        "fast-then-slow": [run((10.0, 0.5), (70.0, 0.7))],
    }
    assert best(groups, BY_TIME) == {"p": "fast-then-slow"}
    score = score_runs(groups["fast-then-slow"], BY_TIME, ACCURACY, 1)
    assert (score.values, score.missed, score.aims) == ((40.0,), 0, 2)


def test_fewer_missed_targets_go_before_any_time_and_a_missed_one_counts_as_the_runs_length():
    groups = {
        "misses": [run((1.0, 0.5)), run((1.0, 0.5), (2.0, 0.7))],
        "reaches": [run((90.0, 0.5), (99.0, 0.7))] * 2,
    }
    assert best(groups, BY_TIME) == {"p": "reaches"}
    score = score_runs(groups["misses"], BY_TIME, ACCURACY, 2)
    assert (score.values, score.missed, score.aims) == ((50.5, 1.5), 1, 4)


@pytest.mark.parametrize(
    ("metric", "expected"), [("accuracy", "high"), ("loss", "low")], ids=["higher", "lower"]
)
def test_by_value_the_metrics_direction_decides(metric, expected):
    values = {"high": 0.9, "low": 0.2}
    groups = {
        label: [make_summary(accuracy=[(0.0, value)], loss=[(0.0, value)])]
        for label, value in values.items()
    }
    assert best(groups, Criterion("value", metric)) == {"p": expected}


def test_a_value_is_taken_at_a_time():
    groups = {"early": [run((10.0, 0.6), (90.0, 0.6))], "late": [run((10.0, 0.3), (90.0, 0.9))]}
    assert best(groups, Criterion("value", at_s=50.0)) == {"p": "early"}
    assert best(groups, Criterion("value")) == {"p": "late"}


def test_what_diverged_failed_or_is_not_over_is_never_chosen():
    good = [run((90.0, 0.5), (99.0, 0.7))] * 2
    groups = {
        "diverged": [run((1.0, 0.7)), run((1.0, 0.7), diverged=(3, 2.0))],
        "failed": [run((1.0, 0.7))],
        "unfinished": [run((1.0, 0.7), finished=None)] * 2,
        "good": good,
    }
    assert best(groups, BY_TIME, seeds=2) == {"p": "good"}
    faults = best_of_each(groups, dict.fromkeys(groups, "p"), BY_TIME, 2)[1]
    assert {label: dict(score.faults) for label, score in faults.items()} == {
        "diverged": {"diverged": 1},
        "failed": {"failed": 1},
        "unfinished": {"unfinished": 2},
        "good": {},
    }
    del groups["good"]
    assert best(groups, BY_TIME, seeds=2) == {"p": None}


def test_equal_settings_go_by_the_last_test_and_then_by_the_grids_order():
    tied = partial(run, (10.0, 0.5), (20.0, 0.7))
    groups = {"a": [tied((30.0, 0.7))], "b": [tied((30.0, 0.8))], "c": [tied((30.0, 0.8))]}
    assert best(groups, BY_TIME) == {"p": "b"}
    never = {"a": [run((9.0, 0.2))], "b": [run((9.0, 0.3))]}
    assert best(never, BY_TIME) == {"p": "b"}


def test_each_policy_has_its_own_best():
    groups = {label: [run((9.0, value))] for label, value in (("a", 0.2), ("b", 0.3), ("c", 0.1))}
    cells = {"a": "one", "b": "one", "c": "other"}
    assert best(groups, Criterion("value"), cells) == {"one": "b", "other": "c"}


def test_runs_that_were_never_tested_leave_nothing_to_choose():
    assert best({"a": [make_summary(metrics=())]}, Criterion("value")) == {"p": None}


def test_a_criterion_is_put_into_words():
    assert BY_TIME.words(ACCURACY) == "mean time to accuracy ≥ 50% and 70%"
    assert Criterion("time", "loss", (0.4,)).words(LOSS) == "time to loss ≤ 0.4"
    assert Criterion("value", at_s=1800.0).words(ACCURACY) == "accuracy at 30 min"
    assert Criterion().words(None) == "last main metric"
