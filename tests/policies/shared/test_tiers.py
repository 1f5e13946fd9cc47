"""FedAT's tiers, by hand and against sorting everybody every time."""

import random

import pytest

from fedpace.policies.shared.tiers import Tiers


def plainly(task_s, ratio):
    """Client -> tier."""
    tiers = {}
    tier, fastest_s = 0, 0.0
    for client in sorted(task_s, key=lambda one: (task_s[one], one)):
        if not tier or task_s[client] > ratio * fastest_s:
            tier, fastest_s = tier + 1, task_s[client]
        tiers[client] = tier
    return tiers


def made(task_s, ratio=2.0, retier=True):
    tiers = Tiers(ratio, retier)
    for client, seconds in task_s.items():
        tiers.put(client, seconds)
    tiers.make()
    return tiers


def listed(tiers):
    return [tiers.free(tier).tolist() for tier in range(1, tiers.count + 1)]


def test_tiers_by_hand():
    """Ratio 2: from 1 s on up to 2 s, from 2.5 s on up to 5 s, then 11 s alone."""
    seconds = {0: 5.0, 1: 1.0, 2: 2.0, 3: 11.0, 4: 2.5, 5: 1.9}
    assert listed(made(seconds)) == [[1, 2, 5], [0, 4], [3]]
    assert listed(made({3: 7.0, 1: 7.0})) == [[1, 3]]
    assert made(seconds).by_speed([0, 1, 2, 4, 5]) == [1, 5, 2, 4, 0]


def test_a_tier_of_nobody_is_none():
    tiers = made({0: 1.0, 1: 4.0})
    tiers.forget(1)
    tiers.forget(1)
    tiers.make()
    assert (tiers.count, tiers.known) == (1, 1)
    tiers.forget(0)
    tiers.make()
    assert (tiers.count, tiers.known) == (0, 0)


def test_who_is_in_a_round_is_not_free():
    tiers = made({0: 1.0, 1: 1.5, 2: 4.0})
    tiers.occupy(0, 1)
    tiers.occupy(2, 2)
    assert listed(tiers) == [[1], []]
    assert [tiers.has_free(1), tiers.has_free(2)] == [True, False]
    assert tiers.round_of(2) == 2
    tiers.put(2, 1.2)
    tiers.make()
    tiers.release(2)
    assert listed(tiers) == [[1, 2]]


def test_without_retiering_bounds_and_clients_stay():
    tiers = made({0: 1.0, 1: 4.0}, retier=False)
    tiers.put(0, 9.0)
    for client, seconds in ((8, 0.2), (9, 1.0), (7, 3.9), (6, 50.0)):
        tiers.put(client, seconds)
        tiers.make()
    assert listed(tiers) == [[0, 7, 8, 9], [1, 6]]


def test_without_retiering_who_is_back_before_tiers_are_made_again_has_its_old_one():
    tiers = made({0: 1.0, 1: 4.0}, retier=False)
    tiers.forget(1)
    tiers.put(1, 1.0)
    assert listed(tiers) == [[0], [1]]
    tiers.forget(1)
    tiers.make()
    tiers.put(1, 1.0)
    assert listed(tiers) == [[0, 1]]


@pytest.mark.parametrize("ratio", [1.01, 1.3, 2.0, 10.0])
@pytest.mark.parametrize("seed", range(10))
def test_tiers_are_those_of_sorting_everybody_whatever_happened(ratio, seed):
    draw = random.Random(seed)
    tiers, task_s, busy = Tiers(ratio, retier=True), {}, set()
    for _ in range(400):
        client = draw.randrange(30)
        what = draw.random()
        if what < 0.6:
            # Often one that was there before, or that is the bound of a tier.
            other = draw.choice([0.0, *task_s.values()])
            seconds = draw.choice([draw.lognormvariate(0, 1), other, other * ratio])
            task_s[client] = seconds
            tiers.put(client, seconds)
        elif what < 0.75:
            task_s.pop(client, None)
            tiers.forget(client)
        elif client in busy:
            busy.remove(client)
            tiers.release(client)
        elif client in task_s:
            busy.add(client)
            tiers.occupy(client, 1)
        if draw.random() < 0.5:
            tiers.make()
            expected = plainly(task_s, ratio)
            assert tiers.count == max(expected.values(), default=0)
            assert tiers.known == len(task_s)
            for tier in range(1, tiers.count + 1):
                free = sorted(c for c, its in expected.items() if its == tier and c not in busy)
                assert tiers.free(tier).tolist() == free
                assert tiers.has_free(tier) == bool(free)
