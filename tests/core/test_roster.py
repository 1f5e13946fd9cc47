import numpy as np
import pytest

from fedpace.core.roster import Roster


def full(clients: range) -> Roster:
    roster = Roster()
    for client in clients:
        roster.join(client)
    return roster


@pytest.mark.parametrize("count", [1, 5, 40, 99, 100])
def test_a_draw_takes_distinct_free_clients_out_of_the_next_draw(count):
    roster = full(range(100))
    first = roster.draw(count, np.random.default_rng(0))
    rest = roster.draw(1000, np.random.default_rng(1))
    assert len(set(first)) == count
    assert sorted(first + rest) == list(range(100))
    assert roster.idle == 0


def test_a_draw_does_not_depend_on_the_order_in_which_clients_became_free():
    one, other = full(range(50)), full(range(49, -1, -1))
    for client in one.draw(50, np.random.default_rng(0)):
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
    assert (roster.samples(2), 2 in roster, roster.online) == (600, False, [0, 1])
    roster.join(2, 400)
    assert roster.share(2) == 0.5
