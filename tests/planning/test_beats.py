"""Work that fills beats: against a search over all beats, batches and parts of them."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedpace.core.model import ModelProfile
from fedpace.planning.beats import (
    BeatClients,
    BeatSpeeds,
    BeatWork,
    beat_length,
    cut_beat,
    fit_to_beats,
    part_of_batch,
)

MODEL = ModelProfile.even(10, 1000, forward_share=0.3)
NEVER = 2**31


def fit(
    batch_s,
    up_s=0.0,
    down_s=0.0,
    goal=1,
    kept=1,
    limit=NEVER,
    whole=16,
    halvings=3,
    fewer=True,
    beats=4,
    fixed=0.0,
    going_on=False,
    at=0.0,
    latency_s=0.0,
    patient=False,
    epoch=100,
    first=1,
):
    """The work of one client that begins at 0 s; beats are a second apart, from `first` to `beats`."""
    one = BeatClients(
        batch_s=np.array([batch_s]),
        down_s=np.array([down_s]),
        up_s=np.array([up_s]),
        latency_s=np.array([latency_s]),
        epoch=np.array([epoch]),
        limits=np.array([limit]),
        goals=np.array([goal]),
        kept=np.array([kept]),
        whole=np.array([whole]),
        fixed=np.array([fixed]),
        began=np.zeros(1),
        going_on=np.array([going_on]),
    )
    return fit_to_beats(MODEL, one, at, np.arange(first, beats + 1.0), halvings, fewer, patient)[0]


@pytest.mark.parametrize(
    ("batch_s", "found"),
    [
        (0.3, BeatWork(1.0, 3, 10)),
        (1.0, BeatWork(1.0, 1, 10)),
        (1.1, BeatWork(1.0, 1, 10, 8)),
        (2.0, BeatWork(1.0, 1, 10, 8)),
        (2.1, BeatWork(1.0, 1, 10, 4)),
        (7.9, BeatWork(1.0, 1, 10, 2)),
        (8.1, BeatWork(2.0, 1, 10, 2)),  # an eighth does not fit the first beat
        (32.0, BeatWork(4.0, 1, 10, 2)),
    ],
)
def test_as_much_as_fits_the_first_beat_with_time_for_an_eighth_of_a_batch(batch_s, found):
    assert fit(batch_s) == found


def test_transfers_take_of_the_beat():
    assert fit(0.4, up_s=0.3, down_s=0.3) == BeatWork(1.0, 1, 10)
    assert fit(0.9, up_s=0.3, down_s=0.3) == BeatWork(1.0, 1, 10, 4)
    assert fit(0.4, up_s=0.8, down_s=0.8) == BeatWork(2.0, 1, 10)


def test_without_halves_slow_clients_take_more_beats():
    assert fit(1.1, halvings=0) == BeatWork(2.0, 1, 10)
    assert fit(1.1, goal=3, halvings=0) == BeatWork(4.0, 3, 10)


def test_of_many_batches_fewer_are_done_before_one_is_halved():
    assert fit(0.3, goal=8) == BeatWork(1.0, 3, 10)
    assert fit(1.5, goal=8) == BeatWork(2.0, 1, 10)  # an eighth of the goal is a whole batch


def test_as_many_batches_have_fewer_samples_each():
    assert fit(0.3, goal=3, kept=3) == BeatWork(1.0, 3, 10)
    assert fit(0.3, goal=4, kept=4) == BeatWork(1.0, 4, 10, 8)
    assert fit(1.5, goal=4, kept=4) == BeatWork(1.0, 4, 10, 2)
    assert fit(3.0, goal=4, kept=4) == BeatWork(2.0, 4, 10, 2)
    assert fit(0.3, goal=9, kept=9, limit=2) == BeatWork(1.0, 2, 10)
    assert fit(0.5, goal=4, kept=4, fixed=0.3) == BeatWork(1.0, 4, 10, 4)  # 4 times 0.15 + 0.35 / 4 s
    assert fit(0.4, goal=4, kept=4, going_on=True, at=0.5) == BeatWork(1.0, 2, 10)


@pytest.mark.parametrize(
    ("how", "found"),
    [
        (
            {"fixed": 0.9},
            BeatWork(1.0, 1, 10),
        ),  # eight small steps take nearly as long as eight large ones
        ({"whole": 1}, BeatWork(1.0, 1, 10)),  # no samples to spare
        ({"whole": 2}, BeatWork(1.0, 1, 10)),
        ({}, BeatWork(1.0, 8, 10, 2)),
    ],
)
def test_fewer_batches_are_done_where_they_are_there_sooner_than_smaller_ones(how, found):
    assert fit(0.9, goal=8, kept=8, beats=9, **how) == found


def test_who_cannot_be_back_with_enough_does_fewer_batches_or_its_last_layers():
    assert fit(1.1, goal=8, halvings=0) == BeatWork(4.0, 3, 10)
    layers = fit(1.1, goal=8, halvings=0, fewer=False)
    assert layers is not None
    assert layers.depth < 10
    assert fit(1.1, up_s=100.0) is None


def test_what_a_step_takes_however_small_it_is_leaves_less_of_a_beat():
    """A batch takes 0.6 s and 0.6 by its size: 1 s is enough for two thirds, 0.75 s for a quarter."""
    assert fit(1.2, fixed=0.5) == BeatWork(1.0, 1, 10, 8)
    assert fit(1.2, fixed=0.5, up_s=0.25) == BeatWork(1.0, 1, 10, 4)
    assert fit(1.2, fixed=0.5, up_s=0.45) == BeatWork(2.0, 1, 10)


def test_there_is_a_limit_of_batches():
    assert fit(0.1, limit=5) == BeatWork(1.0, 5, 10)
    assert fit(0.1, limit=2, goal=8) == BeatWork(1.0, 2, 10)


def test_who_has_begun_goes_on_with_whole_batches():
    """At 0.5 s it has done one of 0.4 s and is in the second, at 1.3 s the same of 1.2 s."""
    assert fit(0.4, going_on=True, at=0.5) == BeatWork(1.0, 2, 10)
    assert fit(1.2, going_on=True, at=1.3) == BeatWork(3.0, 2, 10)
    assert fit(2.0, at=0.5) == BeatWork(1.0, 1, 10, 4)


def test_latency_of_an_order_is_not_counted_again_with_the_update():
    """The order and the model are there after 0.1 s; of the update's 0.3 s the latency is 0.1."""
    assert fit(0.7, up_s=0.3, latency_s=0.1, down_s=0.1) == BeatWork(1.0, 1, 10)
    assert fit(0.71, up_s=0.3, latency_s=0.1, down_s=0.1) == BeatWork(1.0, 1, 10, 8)


def test_any_number_of_halvings_ends_at_a_sample():
    assert fit(15.9, halvings=10**6) == BeatWork(1.0, 1, 10, 1)
    assert fit(16.1, halvings=10**6) == BeatWork(2.0, 1, 10, 1)


def test_rounding_of_late_times_costs_nobody_half_a_batch():
    for late in (1e4, 1e5, 1e6):
        one = BeatClients(
            *(np.array([value]) for value in (0.003, 0.001, 0.002, 0.0)),
            *(np.array([value]) for value in (100, NEVER, 1, 1, 16, 0.0, late)),
            going_on=np.array([False]),
        )
        due = late + 0.006 * np.arange(1, 4)
        assert fit_to_beats(MODEL, one, late, due, 3, True)[0] == BeatWork(float(due[0]), 1, 10)


def test_a_part_is_a_sample_at_least_and_never_more_than_fits():
    assert [part_of_batch(16, amount) for amount in (0.99, 0.5, 0.49, 0.1, 0.01)] == [8, 8, 4, 1, 1]
    assert part_of_batch(5, 0.5) == 2


@given(
    st.floats(0.02, 40.0),
    st.floats(0.0, 5.0),
    st.integers(1, 9),
    st.integers(0, 5),
    st.sampled_from([1, 2, 16, 20]),
)
def test_no_earlier_beat_has_time_for_enough_and_no_more_fits(batch_s, up_s, goal, halvings, whole):
    """By a search: enough is the goal by 2^halvings, but a sample at least."""
    work = fit(batch_s, up_s=up_s, goal=goal, halvings=halvings, whole=whole, fewer=False, beats=6)
    enough = max(goal / 2**halvings, 1 / whole)
    room = {beat: (beat - up_s) / batch_s for beat in range(1, 7)}
    able = [beat for beat, fits in room.items() if fits >= enough * (1 - 1e-12)]
    assume(not any(math.isclose(fits, enough, rel_tol=1e-6) for fits in room.values()))
    if not able:
        assert work is None or work.depth < MODEL.depth
        return
    assert work is not None
    assert (work.due, work.depth) == (able[0], MODEL.depth)
    fits = room[able[0]]
    if fits >= 1:
        assert work.size is None
        assert work.batches <= fits * (1 + 1e-6) < work.batches + 1 + 1e-3
    else:
        halves = next(number for number in range(1, 20) if 0.5**number <= fits * (1 + 1e-9))
        assert (work.batches, work.size) == (1, max(whole // 2**halves, 1))


def test_who_transfers_for_long_trains_for_about_as_long():
    """Transfers of 2.9 s: a batch of 0.1 s fits 3 s, but 6 s have 31, and root(31) / 6 is the most."""
    transfers = {"up_s": 1.9, "down_s": 1.0, "beats": 12}
    assert fit(0.1, **transfers) == BeatWork(3.0, 1, 10)
    assert fit(0.1, patient=True, **transfers) == BeatWork(6.0, 31, 10)
    assert fit(0.1, patient=True, epoch=12, **transfers) == BeatWork(4.0, 11, 10)  # 12 for 5 s
    assert fit(0.1, patient=True, limit=8, **transfers) == BeatWork(4.0, 8, 10)


def test_who_transfers_for_a_short_time_is_back_on_the_first_beat_all_the_same():
    for batch_s in (0.3, 1.1, 7.9):
        assert fit(batch_s, patient=True) == fit(batch_s)
    assert fit(0.1, up_s=0.5, patient=True) == BeatWork(1.0, 5, 10)
    assert fit(0.1, up_s=0.8, patient=True) == BeatWork(2.0, 12, 10)


def test_nobody_waits_for_a_beat_by_which_it_has_no_more_done():
    """By 5 s there is time for 1.05 batches of 2 s, by 6 s for 1.55: one either way."""
    assert fit(2.0, up_s=2.9, beats=6, patient=True) == BeatWork(5.0, 1, 10)


def test_a_small_batch_counts_by_its_samples_whatever_a_step_costs():
    """A quarter takes 1.85 s of a batch's 2 s: it could be there by 4 s, the whole one by 5 s."""
    slow = {"up_s": 2.15, "fixed": 0.9, "beats": 6}
    assert fit(2.0, **slow) == BeatWork(4.0, 1, 10, 4)
    assert fit(2.0, patient=True, **slow) == BeatWork(5.0, 1, 10)


def test_the_time_of_one_that_has_begun_counts_from_then():
    """It has had its model for 3 s, and whole batches of 1 s are done: 5 by 8 s, 6 by 9 s and so on."""
    late = {"up_s": 3.0, "going_on": True, "at": 3.0, "beats": 24, "patient": True}
    found = fit(1.0, **late)
    worth = {due: math.sqrt(due - 3) / due for due in range(4, 25)}
    assert found == BeatWork(max(worth, key=lambda due: worth[due]), 3, 10) == BeatWork(6.0, 3, 10)


def test_a_beat_that_is_now_is_none():
    one = BeatClients(
        *(np.array([value]) for value in (0.1, 0.0, 2.9, 0.0)),
        *(np.array([value]) for value in (100, NEVER, 1, 1, 16, 0.0, 60.0)),
        going_on=np.array([False]),
    )
    due = 60.0 + np.arange(24)
    assert fit_to_beats(MODEL, one, 60.0, due, 3, True, True)[0] == BeatWork(66.0, 31, 10)


@given(
    st.floats(0.02, 9.0),
    st.floats(0.0, 9.0),
    st.floats(0.0, 9.0),
    st.tuples(st.integers(1, 5), st.booleans()),
    st.integers(0, 4),
    st.integers(1, 40),
    st.sampled_from([0.0, 0.3, 0.8]),
)
def test_no_other_beat_has_more_done_for_its_time(batch_s, down_s, up_s, goals, halvings, epoch, fixed):
    """By a search: what would be done if each beat were the only one, by its root and its time."""
    goal, equal = goals
    assume(goal <= epoch)
    how = {"down_s": down_s, "up_s": up_s, "goal": goal, "kept": goal if equal else 1}
    how |= {"halvings": halvings, "epoch": epoch, "fixed": fixed, "fewer": False}
    found = fit(batch_s, patient=True, beats=24, **how)

    def worth(work):
        part = (1 << (16 // work.size).bit_length() - 1) if work.size else 1
        return math.sqrt(min(work.batches / part, epoch)) / work.due

    whole = 10  # layers: who trains fewer could not do enough
    alone = [fit(batch_s, beats=beats, first=beats, **how) for beats in range(1, 25)]
    able = [work for work in alone if work is not None and work.depth == whole]
    assume(able)
    assert found is not None
    assert worth(found) == pytest.approx(max(map(worth, able)))


def speeds_of(batch_s, transfer_s, goal=1, kept=1, whole=16, fixed=0.0):
    alike = (np.full(len(batch_s), value) for value in (goal, kept, whole, fixed))
    return BeatSpeeds(np.array(batch_s), np.array(transfer_s), *alike)


def length(batch_s, transfer_s, k, halvings=3, **alike):
    """The beat of clients with these times."""
    return beat_length(speeds_of(batch_s, transfer_s, **alike), k, halvings)


def test_clients_of_like_speed_get_a_beat_that_all_of_them_fit():
    """By the fastest's beat four of five would do half of what they can."""
    assert length([1.0, 1.01, 1.02, 1.03, 1.04], [0.0] * 5, k=1) == pytest.approx(1.04)
    assert length([1.0, 1.01, 1.02, 1.03, 1.04], [0.0] * 5, k=1, goal=3) == pytest.approx(3.12)


def test_nobody_much_slower_makes_beats_longer():
    assert length([1.0, 8.0, 8.0, 8.0], [0.0] * 4, k=1) == 1.0
    assert length([1.0, 1.9, 1.9], [0.0] * 3, k=1) == 1.0  # half a batch fills 0.95 s
    assert length([1.0, 1.2], [0.0] * 2, k=1) == 1.2  # half a batch leaves 0.4 of 1 s


def test_who_needs_several_beats_for_its_link_is_at_work_in_all_of_them():
    """It is back every second beat of 1 s, and would be back on each of 1.9 s, by 1.8 s."""
    assert length([0.9, 0.1], [0.1, 1.8], k=1) == pytest.approx(1.0)


@given(
    st.lists(st.tuples(st.floats(0.05, 20.0), st.floats(0.0, 10.0)), min_size=1, max_size=9),
    st.integers(1, 9),
    st.integers(1, 5),
    st.booleans(),
    st.integers(0, 4),
    st.sampled_from([1, 2, 16]),
    st.sampled_from([0.0, 0.3, 0.8]),
)
def test_no_other_clients_time_keeps_clients_at_work_longer(
    speeds, k, goal, equal, halvings, whole, fixed
):
    """By a search over clients, in which the work of each is what it would be given."""
    settings = {"goal": goal, "kept": goal if equal else 1, "halvings": halvings}
    settings |= {"whole": whole, "fixed": fixed}
    needed = sorted(up_s + goal * batch_s for batch_s, up_s in speeds)
    least = needed[min(k, len(needed)) - 1]

    def score(beat_s):
        shares = []
        for batch_s, up_s in speeds:
            times = batch_s / beat_s, up_s / beat_s
            given_ = fit(*times, **settings, beats=2000)
            part = (1 << (whole // given_.size).bit_length() - 1) if given_.size else 1
            each = fixed + (1 - fixed) / part if given_.size else 1.0
            shares.append((up_s + given_.batches * each * batch_s) / (given_.due * beat_s))
        return np.mean(shares) / math.sqrt(beat_s)

    found = length(*zip(*speeds, strict=True), k=k, **settings)
    tried = [beat_s for beat_s in needed if least <= beat_s <= 2 * least]
    assert found in [pytest.approx(one) for one in tried]
    assert score(found) >= max(map(score, tried)) * (1 - 1e-6)


def test_of_many_clients_the_slowest_are_tried_too():
    """All 200 are within 2%, and fill the slowest's time."""
    assert length(np.linspace(1.0, 1.02, 200), np.zeros(200), k=1) == pytest.approx(1.02)


@given(
    st.lists(st.tuples(st.floats(0.01, 20.0), st.floats(0.0, 10.0)), min_size=1, max_size=9),
    st.integers(1, 9),
    st.integers(1, 5),
    st.floats(0.5, 8.0),
)
def test_beats_are_cut_down_to_the_most_work_while_nobody_misses_them_for_it(speeds, k, goal, most):
    batch_s, transfer_s = map(np.array, zip(*speeds, strict=True))

    def work(beat_s):
        return np.mean(np.maximum(beat_s - transfer_s, 0.0) / (goal * batch_s))

    clients = speeds_of(batch_s, transfer_s, goal)
    usual = beat_length(clients, k, 3)
    found = cut_beat(usual, clients, 3, most, 24)
    enough = transfer_s + goal / 8 * batch_s
    least = max(enough[enough <= usual * (1 + 1e-9)])
    least = max(least, max(enough[enough <= 24 * usual * (1 + 1e-9)]) / 24)
    assert least * (1 - 1e-9) <= found <= usual
    if work(found) > most * (1 + 1e-9):
        assert found == pytest.approx(least)
    elif found < usual * (1 - 1e-9):
        assert work(found) == pytest.approx(most)
