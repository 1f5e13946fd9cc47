"""Samples that arrive over time: how many by when, which of them are kept, in which order."""

import math
import pickle

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.core.random import keyed as seeds
from fedpace.data.streams import Stream, StreamSettings, make_stream, order_of_arrival

SEED = 7
ARRIVALS = ("smooth", "burst", "random")
KEPT = ("reservoir", "random", "fifo")


def stream(samples=(1000,), seed=SEED, **settings):
    return Stream(StreamSettings(**{"arrival": "smooth"} | settings), samples, seed)


# How many have come


def test_smooth_data_comes_in_equal_amounts_at_equal_distances():
    made = stream(initial=10, amount=50, every=4)
    by = [made.arrived(0, version, 0.0) for version in (0, 3, 4, 7, 8, 40)]
    assert by == [10, 10, 60, 60, 110, 510]


def test_a_burst_comes_at_once_and_the_rest_trickles():
    made = stream(arrival="burst", initial=10, amount=500, every=100, trickle=0.5)
    by = [made.arrived(0, version, 0.0) for version in (0, 1, 2, 99, 100, 101)]
    assert by == [10, 10, 11, 59, 560, 560]


def test_without_a_trickle_nothing_comes_but_the_burst():
    made = stream(arrival="burst", initial=10, amount=500, every=100)
    assert {made.arrived(0, version, 0.0) for version in range(100)} == {10}
    assert {made.arrived(0, version, 0.0) for version in range(100, 300)} == {510}


def test_random_data_comes_at_the_rate_that_is_asked_for_on_average():
    clients = 3000
    made = stream((10**6,) * clients, arrival="random", initial=10, amount=40, every=5)
    for version in (5, 8, 25):
        came = np.array([made.arrived(client, version, 0.0) - 10 for client in range(clients)])
        assert came.mean() == pytest.approx(40 * version / 5, rel=0.03)


def test_random_rates_differ_between_clients_and_change_with_time():
    clients, periods = 400, 60
    made = stream((10**6,) * clients, arrival="random", amount=100, every=1)
    by = np.array([[made.arrived(c, v, 0.0) for v in range(periods + 1)] for c in range(clients)])
    came = np.diff(by, axis=1)
    over_time = came.var(axis=1).mean() / 100
    between = came.mean(axis=1).var() / 100
    even = stream((10**6,), arrival="random", amount=100, every=1, spread=0)
    steady = np.diff([even.arrived(0, version, 0.0) for version in range(400)])
    assert steady.var() / 100 == pytest.approx(1, abs=0.3)  # a Poisson process
    assert over_time > 10
    assert between > 10


def test_random_data_comes_one_by_one_within_an_interval():
    made = stream(arrival="random", amount=60, every=100, spread=0, initial=1)
    came = [made.arrived(0, version, 0.0) for version in range(101)]
    assert len(set(came)) > 30
    assert max(np.diff(came)) < 8


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("clock", ["rounds", "seconds"])
def test_what_has_come_never_grows_less_and_ends_with_all_there_is(arrival, clock):
    made = stream((5, 300, 4000), arrival=arrival, clock=clock, amount=70, every=3, trickle=2, spread=1)
    times = np.linspace(0, 4000, 1500)
    for client, total in enumerate((5, 300, 4000)):
        by = [made.arrived(client, int(time), float(time)) for time in times]
        assert by == sorted(by)
        assert by[0] == min(total, 100)
        assert by[-1] == total


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_rounds_and_seconds_are_two_clocks(arrival):
    rounds = stream(arrival=arrival, every=3)
    seconds = stream(arrival=arrival, every=3, clock="seconds")
    for time in range(30):
        assert rounds.arrived(0, time, 1e9) == seconds.arrived(0, 10**9, float(time))


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("keep", KEPT)
def test_answers_depend_on_the_seed_and_the_client_and_never_on_earlier_questions(arrival, keep):
    samples = (900, 900)
    settings = {"arrival": arrival, "keep": keep, "buffer": 80, "every": 2, "trickle": 3}
    one, two = (stream(samples, **settings) for _ in range(2))
    asked = [(client, version) for client in (0, 1) for version in range(0, 90, 7)]
    forwards = [one.arrived(*question, 0.0) for question in asked]
    backwards = [two.arrived(*question, 0.0) for question in reversed(asked)]
    assert forwards == backwards[::-1]
    copy = pickle.loads(pickle.dumps(one))
    for seen in (700, 150, 80, 20):
        assert np.array_equal(one.held(1, seen), stream(samples, **settings).held(1, seen))
        assert np.array_equal(one.held(1, seen), copy.held(1, seen))


def test_another_seed_and_another_client_see_other_data():
    settings = {"arrival": "random", "buffer": 50}
    one, other = stream((900, 900), **settings), stream((900, 900), seed=SEED + 1, **settings)
    assert one.arrived(0, 9, 0.0) != other.arrived(0, 9, 0.0)
    assert one.arrived(0, 9, 0.0) != one.arrived(1, 9, 0.0)
    assert not np.array_equal(one.held(0, 500), other.held(0, 500))
    assert not np.array_equal(one.held(0, 500), one.held(1, 500))


def test_rounding_delays_nothing():
    made = stream(clock="seconds", every=0.1, amount=1, initial=1)
    assert [made.arrived(0, 0, 0.1 * step) for step in range(200)] == list(range(1, 201))


# What is kept


def loop(keep, size, seen, client):
    """Algorithm 4 and its rivals, sample by sample."""
    draws = seeds.generator(SEED, "stream.keep", client)
    buffer = []
    for sample in range(seen):
        if len(buffer) < size:
            buffer.append(sample)
        elif keep == "fifo":
            buffer = [*buffer[1:], sample]
        else:
            among = sample + 1 if keep == "reservoir" else size
            place = math.floor(draws.random() * among)
            if place < size:
                buffer[place] = sample
    return sorted(buffer)


@pytest.mark.parametrize("keep", KEPT)
def test_a_buffer_holds_what_taking_samples_one_by_one_leaves_in_it(keep):
    made = stream((400,) * 3, keep=keep, buffer=17)
    for client in range(3):
        for seen in (1, 16, 17, 18, 60, 400):
            assert made.held(client, seen).tolist() == loop(keep, 17, seen, client)


@pytest.mark.parametrize("keep", KEPT)
def test_a_buffer_of_one_holds_one(keep):
    made = stream((30,), keep=keep, buffer=1)
    assert [len(made.held(0, seen)) for seen in range(1, 31)] == [1] * 30


@pytest.mark.parametrize("keep", KEPT)
def test_a_buffer_never_holds_more_than_it_can_nor_anything_twice_nor_what_has_not_come(keep):
    made = stream((500,), keep=keep, buffer=64)
    for seen in range(1, 500, 13):
        held = made.held(0, seen)
        assert len(held) == made.count(0, seen) == min(seen, 64)
        assert len(np.unique(held)) == len(held)
        assert held.max() < seen


def test_without_a_buffer_everything_is_kept():
    made = stream((500,))
    assert made.held(0, 300).tolist() == list(range(300))
    assert made.most(0) == 500


def evenness(keep, seen, size, keys=6000):
    """Chi-square of how often each sample is kept; for equal chances about seen - 1, +- sqrt(2 seen).

    Counts of a draw without replacement have (seen - size) / (seen - 1) of the variance of free ones.
    """
    made = stream((seen,) * keys, keep=keep, buffer=size)
    counts = sum(np.bincount(made.held(client, seen), minlength=seen) for client in range(keys))
    expected = keys * size / seen
    return ((counts - expected) ** 2 / expected).sum() * (seen - 1) / (seen - size)


@pytest.mark.parametrize(("seen", "size"), [(20, 5), (40, 39), (60, 1)])
def test_a_reservoir_keeps_every_sample_with_the_same_chance(seen, size):
    assert evenness("reservoir", seen, size) < seen - 1 + 4 * math.sqrt(2 * (seen - 1))


@pytest.mark.parametrize("keep", ["random", "fifo"])
def test_the_other_buffers_do_not(keep):
    assert evenness(keep, 20, 5, keys=500) > 10 * (19 + 4 * math.sqrt(38))


def test_random_replacement_forgets_at_a_constant_rate():
    keys, size = 6000, 5
    made = stream((20,) * keys, keep="random", buffer=size)
    counts = sum(np.bincount(made.held(client, 20), minlength=20) for client in range(keys))
    chances = np.concatenate([np.full(5, 0.8**15), 0.8 ** np.arange(14, -1, -1)])
    assert np.allclose(counts / keys, chances, atol=4 * 0.5 / math.sqrt(keys))


# The order of arrival

LABELS = np.repeat(np.arange(5), 40)
SHARES = [np.arange(start, 200, 4) for start in range(4)]


def test_a_continuous_stream_brings_one_class_after_the_other_the_same_for_all():
    orders = order_of_arrival(SHARES, LABELS, "continuous", SEED)
    sequences = [LABELS[order][::10].tolist() for order in orders]
    assert sequences == [sequences[0]] * 4
    assert sorted(sequences[0]) == [0, 1, 2, 3, 4]
    for order, share in zip(orders, SHARES, strict=True):
        assert np.count_nonzero(np.diff(LABELS[order])) == 4
        assert np.array_equal(np.sort(order), share)
    assert any((np.diff(order) < 0).sum() > 15 for order in orders)  # shuffled within a class


def test_the_sequence_of_classes_depends_on_the_seed():
    found = {
        tuple(LABELS[order_of_arrival(SHARES, LABELS, "continuous", seed)[0]][::10])
        for seed in range(20)
    }
    assert len(found) > 15


def test_an_iid_stream_brings_all_classes_all_the_time():
    for order, share in zip(order_of_arrival(SHARES, LABELS, "iid", SEED), SHARES, strict=True):
        assert np.array_equal(np.sort(order), share)
        assert set(LABELS[order[:25]]) == set(range(5))


def test_a_continuous_stream_needs_classes():
    with pytest.raises(ConfigError, match=r"one class a sample, but targets are float64"):
        order_of_arrival(SHARES, LABELS.astype(float), "continuous", SEED)


# Settings


def test_static_data_has_no_stream():
    assert make_stream(StreamSettings(), (10,), SEED) is None
    assert make_stream(StreamSettings("burst"), (10,), SEED) is not None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"arrival": "slow"}, "arrival is 'slow'; set it to none, smooth, burst or random"),
        ({"content": "x"}, "content is 'x'; set it to iid or continuous"),
        ({"clock": "x"}, "clock is 'x'"),
        ({"keep": "x"}, "keep is 'x'"),
        ({"initial": 0}, "initial is 0, but a client cannot train on nothing"),
        ({"amount": 0}, "amount is 0"),
        ({"every": 0.0}, "every is 0.0"),
        ({"every": math.nan}, "every is nan"),
        ({"trickle": -1.0}, "trickle is -1.0"),
        ({"spread": 4.0}, "spread is 4.0; set it between 0 and 3"),
        ({"buffer": 0}, "buffer is 0"),
    ],
)
def test_impossible_streams_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        StreamSettings(**wrong)
