import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.books import Roster
from fedpace.core.random import keyed as seeds


def drawn(roster, count, rng):
    """Draw clients, and give them something to do."""
    clients = roster.draw(count, rng)
    for client in clients:
        roster.occupy(client)
    return clients


def full(clients: range) -> Roster:
    roster = Roster()
    for client in clients:
        roster.join(client)
    return roster


@pytest.mark.parametrize("count", [1, 5, 40, 99, 100])
def test_a_draw_takes_distinct_free_clients_out_of_the_next_draw(count):
    roster = full(range(100))
    first = drawn(roster, count, np.random.default_rng(0))
    rest = drawn(roster, 1000, np.random.default_rng(1))
    assert len(set(first)) == count
    assert sorted(first + rest) == list(range(100))
    assert roster.idle == 0


def test_a_draw_does_not_depend_on_the_order_in_which_clients_became_free():
    one, other = full(range(50)), full(range(49, -1, -1))
    for client in drawn(one, 50, np.random.default_rng(0)):
        one.release(client)
    assert one.draw(7, np.random.default_rng(2)) == other.draw(7, np.random.default_rng(2))


@pytest.mark.parametrize("free", [10, 90])
def test_every_free_client_is_drawn_equally_often(free):
    counts = np.zeros(100)
    for seed in range(4000):
        roster = full(range(100))
        for client in range(100 - free):
            roster.leave(client)
        for client in roster.draw(5, np.random.default_rng(seed)):
            counts[client] += 1
    expected = 4000 * 5 / free
    chi_square = ((counts[100 - free :] - expected) ** 2 / expected).sum()
    assert counts[: 100 - free].sum() == 0
    assert chi_square < free + 4 * np.sqrt(2 * free)


def drawn_one_by_one(known, free, count, rng):
    """What a draw is, told as simply as can be."""
    count, chosen = min(count, len(free)), []
    if 2 * count <= len(free) and count * len(known) < len(free) ** 2:
        while len(chosen) < count:
            for i in rng.integers(len(known), size=2 * count).tolist():
                client = sorted(known)[i]
                if len(chosen) < count and client in free - set(chosen):
                    chosen.append(client)
        return chosen
    return [sorted(free)[i] for i in rng.choice(len(free), count, replace=False)] if count else []


@given(st.lists(st.tuples(st.sampled_from("jlrd"), st.integers(0, 30)), max_size=80))
def test_whatever_happens_a_draw_is_the_one_of_all_that_are_free(steps):
    roster, known, online, free = Roster(), set(), set(), set()
    for number, (step, value) in enumerate(steps):
        if step == "j" and value not in online:
            roster.join(value, 5)
            for group in (known, online, free):
                group.add(value)
        elif step == "l":
            roster.leave(value)
            online.discard(value)
            free.discard(value)
        elif step == "r" and value in known:
            roster.release(value)
            free |= {value} & online
        elif step == "d":
            count = value % 4
            expected = drawn_one_by_one(known, free, count, np.random.default_rng(number))
            assert drawn(roster, count, np.random.default_rng(number)) == expected
            free -= set(expected)
        assert (roster.idle, roster.online) == (len(free), sorted(online))
        assert all(roster.is_online(client) == (client in online) for client in range(-2, 35))


def test_a_client_that_left_cannot_be_released_into_the_draw():
    roster = full(range(2))
    roster.leave(0)
    roster.release(0)
    assert roster.draw(5, np.random.default_rng(0)) == [1]


def test_an_empty_roster_draws_nobody():
    assert Roster().draw(3, np.random.default_rng(0)) == []


def test_shares_are_of_the_samples_online_and_samples_are_remembered():
    roster = Roster()
    for client, samples in ((0, 100), (1, 300), (2, 600)):
        roster.join(client, samples)
    assert roster.share(1) == 0.3
    roster.leave(2)
    roster.leave(2)
    assert roster.share(1) == 0.75
    assert (roster.samples(2), roster.is_online(2), roster.online) == (600, False, [0, 1])
    roster.join(2, 400)
    assert roster.share(2) == 0.5


def test_what_clients_tell_of_data_that_arrives_is_what_counts():
    roster = Roster()
    roster.join(0, 100, most=150)
    roster.join(1, 300)
    roster.hear(0, 200)
    roster.hear(1, None)
    assert roster.share(0) == 0.4
    assert (roster.samples(0), roster.held(0)) == (200, 150)
    assert (roster.samples(1), roster.held(1)) == (300, 300)


def test_a_client_that_comes_back_has_got_what_it_had_told_of_and_more():
    roster = Roster()
    roster.join(0, 100, most=150)
    roster.join(1, 100, most=1000)
    roster.hear(0, 200)
    for client, samples in ((0, 150), (1, 400)):
        roster.leave(client)
        roster.hear(client, None)
        roster.join(client, samples, most=1000 if client else 150)
    assert (roster.samples(0), roster.held(0)) == (200, 150)
    assert (roster.samples(1), roster.held(1)) == (400, 400)
    roster.leave(1)
    roster.hear(1, 500)  # heard of too late to count for those who are there
    assert roster.share(0) == 1.0
    assert roster.samples(1) == 500


@given(st.sets(st.integers(0, 30)), st.sets(st.integers(0, 30)), st.integers(0, 12))
def test_a_draw_leaves_out_those_that_it_is_told_to(busy, barred, count):
    one, other = full(range(31)), full(range(31))
    for client in busy:
        one.occupy(client)
    for client in busy | barred:
        other.occupy(client)
    expected = other.draw(count, np.random.default_rng(count))
    assert one.draw(count, np.random.default_rng(count), but=barred) == expected


def test_every_free_client_is_picked_equally_often_and_no_other():
    roster = full(range(100))
    for client in range(0, 100, 2):
        roster.occupy(client)
    picked = [roster.pick(seeds.keyed_entropy(1, "pick", number)) for number in range(20_000)]
    counts = np.bincount([client for client in picked if client is not None], minlength=100)
    assert counts[::2].sum() == 0
    assert 0.2 < picked.count(None) / len(picked) < 0.3  # two tries, each of which meets every other
    expected = counts.sum() / 50
    assert ((counts[1::2] - expected) ** 2 / expected).sum() < 50 + 4 * np.sqrt(2 * 50)


def test_among_few_free_clients_nobody_is_picked_by_trial():
    roster = full(range(100))
    for client in range(95):
        roster.occupy(client)
    assert roster.pick(0) is None


@pytest.mark.parametrize("clients", [3, 300])
def test_a_free_client_that_is_alone_is_known_without_a_draw(clients):
    roster = full(range(clients))
    assert roster.only_free() is None
    for client in range(clients):
        if client != 2:
            roster.occupy(client)
    assert [roster.only_free()] == roster.draw(1, np.random.default_rng(0)) == [2]
    roster.occupy(2)
    assert roster.only_free() is None
