"""Successive halving: how many pilots, how long and with how many seeds."""

import pytest

from fedpace.advice.pilots.halving import (
    PilotCost,
    Rung,
    first_rung,
    keep_better,
    longest,
    next_rung,
    one_more_seed,
    rungs_before_last,
    spent_s,
)

EIGHT = tuple("abcdefgh")


def costs(hour_s=10.0, setup_s=1.0):
    return dict.fromkeys(EIGHT, PilotCost(setup_s, hour_s))


def test_the_longest_pilots_use_up_the_time():
    hours = longest("ab", costs(), {}, 2, 84.0)
    assert hours == pytest.approx(2.0)  # four runs of 1 + 20 s
    assert spent_s("ab", costs(), {}, 2, hours) == pytest.approx(84.0)


def test_what_pilots_have_done_is_not_paid_again():
    done = {("a", 0): 2.0, ("b", 0): 2.0}
    assert longest("ab", costs(), done, 1, 22.0) == pytest.approx(3.0)


def test_the_first_rung_has_as_many_candidates_as_can_have_a_pilot():
    rich = first_rung(EIGHT, costs(), 0.1, 5.0, 1000.0)
    poor = first_rung(EIGHT, costs(), 1.0, 5.0, 60.0)
    assert rich.labels == EIGHT
    assert 0.1 < rich.hours <= 5.0
    assert 1 <= len(poor.labels) < 8
    assert poor.labels == EIGHT[: len(poor.labels)]
    assert first_rung(EIGHT, costs(), 1.0, 5.0, 3.0) is None


def test_no_rung_is_longer_than_the_horizon():
    assert first_rung(EIGHT, costs(), 0.1, 2.0, 1e6).hours == 2.0
    assert next_rung(Rung(("a", "b"), 1, 1.0), "ab", costs(), {}, 2.0, 1e6) == Rung(("a", "b"), 3, 2.0)


def test_rungs_get_longer_and_the_last_has_more_seeds():
    rung, left, core_s = first_rung(EIGHT, costs(), 0.1, 5.0, 600.0), list(EIGHT), 600.0
    done, lengths = {}, []
    while rung is not None:
        spent = spent_s(rung.labels, costs(), done, rung.seeds, rung.hours)
        assert spent <= core_s + 1e-6
        core_s -= spent
        lengths.append(rung.hours)
        done |= {(label, seed): rung.hours for label in rung.labels for seed in range(rung.seeds)}
        left = keep_better(rung.labels, None)
        seeds = rung.seeds
        rung = next_rung(rung, left, costs(), done, 5.0, core_s)
    assert lengths == sorted(lengths)
    assert len(left) == 3
    assert seeds > 1


def test_with_no_time_left_there_is_no_rung():
    rung = Rung(("a", "b"), 1, 1.0)
    done = {("a", 0): 1.0, ("b", 0): 1.0}
    assert next_rung(rung, "ab", costs(), done, 5.0, 0.5) is None


def test_the_better_half_is_kept_and_the_most_even_with_it():
    assert keep_better(EIGHT, None) == list("abcd")
    assert keep_better(EIGHT, "g") == list("abcg")
    assert keep_better("abc", "c") == list("abc")
    assert keep_better("ab", None) == list("ab")


@pytest.mark.parametrize(("count", "rungs"), [(1, 0), (3, 0), (4, 1), (6, 1), (7, 2), (12, 2), (16, 3)])
def test_halvings_until_the_last_rung(count, rungs):
    assert rungs_before_last(count) == rungs


def test_those_that_are_not_told_apart_get_one_seed_more_as_far_as_the_time_goes():
    rung = Rung(tuple("abc"), 2, 1.0)
    done = {(label, seed): 1.0 for label in "abc" for seed in range(2)}
    assert one_more_seed(rung, "abc", costs(), done, 40.0) == Rung(("a", "b", "c"), 3, 1.0)
    assert one_more_seed(rung, "abc", costs(), done, 25.0) == Rung(("a", "b"), 3, 1.0)
    assert one_more_seed(rung, "abc", costs(), done, 15.0) is None
    assert one_more_seed(rung, "a", costs(), done, 1e6) is None
    assert one_more_seed(Rung(tuple("ab"), 6, 1.0), "ab", costs(), done, 1e6) is None
