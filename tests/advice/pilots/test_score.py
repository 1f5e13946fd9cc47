"""Scores of pilots, chance, and what is told apart."""

import math

import pytest

from fedpace.advice.aims import Aim
from fedpace.advice.pilots.score import (
    ASSUMED_COST_SPREAD,
    Chance,
    PilotScore,
    find_chance,
    find_scale,
    score_pilots,
)
from fedpace.core.evaluation.fairness import Fairness
from fedpace.core.evaluation.metric import ACCURACY, LOSS
from tests.report.conftest import make_summary as summary

TIME = Aim("time", target=0.6, horizon_s=100.0)


def curve(*values, every=10.0):
    return [(place * every, value) for place, value in enumerate(values)]


def run(*values, **others):
    return summary(values={"accuracy": curve(*values)}, metrics=(ACCURACY, LOSS), **others)


def test_time_to_the_target_is_the_score_where_two_candidates_reach_it():
    pilots = {"a": {0: run(0.1, 0.5, 0.7)}, "b": {0: run(0.1, 0.65, 0.7)}, "c": {0: run(0.1, 0.2, 0.3)}}
    scale = find_scale(TIME, ACCURACY, pilots, 100.0)
    scores = score_pilots(scale, pilots, final=True)
    assert scale.level == 0.6
    assert list(scores) == ["b", "a", "c"]
    assert [scale.shown(scores[one].mean) for one in "ba"] == pytest.approx([10.0, 20.0])
    assert [scores[one].reached for one in "bac"] == [1, 1, 0]


def test_below_the_target_candidates_are_compared_at_what_the_second_has_reached():
    pilots = {"a": {0: run(0.1, 0.2, 0.5)}, "b": {0: run(0.1, 0.3, 0.4)}, "c": {0: run(0.1, 0.1, 0.1)}}
    scale = find_scale(TIME, ACCURACY, pilots, 100.0)
    assert scale.level == 0.4
    assert list(score_pilots(scale, pilots))[2] == "c"


def test_tests_after_the_common_time_do_not_count():
    pilots = {"a": {0: run(0.1, 0.2, 0.3, 0.9)}, "b": {0: run(0.1, 0.25, 0.35)}}
    scale = find_scale(TIME, ACCURACY, pilots, 20.0)
    assert scale.level == pytest.approx(0.3)
    assert next(iter(score_pilots(scale, pilots))) == "b"


def test_values_are_means_of_the_last_tests_and_a_loss_is_the_better_the_smaller():
    aim = Aim("value", horizon_s=100.0)
    pilots = {"a": {0: run(0.1, 0.5, 0.5)}, "b": {0: run(0.1, 0.5, 0.6)}}
    scale = find_scale(aim, ACCURACY, pilots, 100.0)
    scores = score_pilots(scale, pilots)
    assert list(scores) == ["b", "a"]
    assert scale.shown(-1.2) == 1.0  # the end of an interval, and still a share
    assert scale.shown(scores["b"].mean) == pytest.approx(0.6)
    losses = {
        label: {0: summary(values={"loss": curve(2.0, last)}, metrics=(LOSS,))}
        for label, last in (("a", 1.0), ("b", 0.5))
    }
    assert list(score_pilots(find_scale(aim, LOSS, losses, 100.0), losses)) == ["b", "a"]


def test_fairness_is_that_of_the_worst_served_tenth():
    found = {
        label: {0: run(0.1, 0.5, fairness=Fairness("accuracy", 10, 0.5, worst, 0.1))}
        for label, worst in (("a", 0.2), ("b", 0.3))
    }
    scale = find_scale(Aim("fairness", horizon_s=100.0), ACCURACY, found, 100.0)
    assert list(score_pilots(scale, found)) == ["b", "a"]


def test_bytes_to_the_target_are_those_that_were_moved_by_then():
    pilots = {
        "light": {0: run(0.1, 0.3, 0.6, values_by_bytes={"accuracy": curve(0.1, 0.3, 0.6, every=1)})},
        "heavy": {0: run(0.1, 0.6, 0.6, values_by_bytes={"accuracy": curve(0.1, 0.6, 0.6, every=9)})},
    }
    scale = find_scale(Aim("bytes", target=0.6, horizon_s=100.0), ACCURACY, pilots, 100.0)
    scores = score_pilots(scale, pilots, final=True)
    assert [scale.shown(one.mean) for one in scores.values()] == pytest.approx([2.0, 9.0])


def test_a_candidate_that_diverged_has_no_score():
    pilots = {"a": {0: run(0.1, 0.5)}, "b": {0: run(0.1, 0.5), 1: run(0.1, diverged=(3, 9.0))}}
    scale = find_scale(TIME, ACCURACY, pilots, 100.0)
    assert list(score_pilots(scale, pilots)) == ["a"]


def scores(**by_label):
    return {label: PilotScore(dict(enumerate(values))) for label, values in by_label.items()}


def scale_of(aim=TIME):
    return find_scale(aim, ACCURACY, {"a": {0: run(0.1, 0.6)}}, 100.0)


def test_chance_is_what_candidates_and_seeds_do_not_explain():
    # Seeds differ by 1 and candidates by 0.5, in all of them alike but for 0.1.
    table = scores(a=[0.0, 1.0, 2.1], b=[0.5, 1.5, 2.5], c=[1.0, 2.1, 3.0])
    chance = find_chance(scale_of(), table)
    assert chance.freedom == 4
    assert chance.spread < 0.1
    assert chance.tells_apart(table["a"], table["b"])


def test_seeds_that_disagree_tell_nothing_apart():
    table = scores(a=[0.0, 1.0, 0.2], b=[0.5, 0.3, 0.4])
    assert not find_chance(scale_of(), table).tells_apart(table["a"], table["b"])


def test_of_one_seed_a_spread_is_assumed():
    table = scores(a=[0.0], b=[0.3], c=[2.0])
    chance = find_chance(scale_of(), table)
    assert chance == Chance(ASSUMED_COST_SPREAD, None)
    assert not chance.tells_apart(table["a"], table["b"])
    assert chance.tells_apart(table["a"], table["c"])


def test_two_seeds_that_agree_by_chance_are_not_believed_at_once():
    table = scores(a=[math.log(10), math.log(12)], b=[math.log(11), math.log(13.2)])
    assert not find_chance(scale_of(), table).tells_apart(table["a"], table["b"])


def test_a_candidate_with_an_easy_seed_alone_is_not_put_first_for_it():
    aim = Aim("value", horizon_s=100.0)
    pilots = {
        "many": {0: run(0.1, 0.7), 1: run(0.1, 0.5)},
        "more": {0: run(0.1, 0.6), 1: run(0.1, 0.4)},
        "lucky": {0: run(0.1, 0.65)},
    }
    scale = find_scale(aim, ACCURACY, pilots, 100.0)
    found = score_pilots(scale, pilots)
    assert list(found) == ["many", "lucky", "more"]
    assert scale.shown(found["many"].mean) == pytest.approx(0.6)
    assert scale.shown(found["lucky"].mean) == pytest.approx(0.55)


def test_a_level_that_is_missed_counts_the_more_the_farther_it_is_away():
    curves = {"near": (0.3, 0.55), "far": (0.2, 0.3), "none": (0.1, 0.1), "a": (0.6,), "b": (0.6,)}
    pilots = {label: {0: run(0.1, *values)} for label, values in curves.items()}
    scale = find_scale(TIME, ACCURACY, pilots, 20.0)
    found = score_pilots(scale, pilots, final=True)
    assert list(found)[2:] == ["near", "far", "none"]
    assert scale.shown(found["near"].mean) == pytest.approx(20 * 1.3 / 0.81, rel=0.01)
