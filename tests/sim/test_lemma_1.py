"""ADEL-FL's Lemma 1 against the simulator: who gets how deep, and how often nobody reaches a layer.

Users of different speed and link get batches by B3 and a common deadline T; layers take exponential
times (B1) and transfers fixed ones (B2).
"""

import math

import numpy as np

from fedpace.core.commands import Train, Work
from fedpace.core.events import Arrived, Started
from fedpace.core.model import ModelProfile
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit
from fedpace.planning import deadline_bound
from fedpace.planning.deadline_bound import DeadlineUsers
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld
from tests.sim.driven import Driven

LAYERS, ROUNDS, DEADLINE_S, SCALE = 4, 3000, 9.0, 3.0
LINKS_S = (0.9, 1.8, 4.5)  # B_u, two thirds of it down
MODEL = ModelProfile.even(LAYERS, 900_000).evened()


def depths(speeds, batches):
    """Layers that each user delivers in each of many rounds, (rounds, users)."""
    fleet = Explicit.build(
        Explicit.Settings(
            tuple(LAYERS / speed for speed in speeds),  # seconds a sample, the full model
            tuple(7.2 / (link_s * 2 / 3) for link_s in LINKS_S),
            tuple(7.2 / (link_s / 3) for link_s in LINKS_S),
            Behaviour(layer_times="exponential"),
        ),
        len(speeds),
        seed=11,
    )
    world = Driven(SimulatedWorld(fleet, (1000,) * len(speeds), MODEL, TimingOnly()))
    while not isinstance(world.next(), Started):
        pass
    found = np.zeros((ROUNDS, len(speeds)), dtype=int)
    for number in range(ROUNDS):
        at = number * DEADLINE_S
        for client, link_s in enumerate(LINKS_S):
            stop_at = at + DEADLINE_S - link_s / 3
            work = Work(int(batches[client]), steps=1, stop_at=stop_at, stop_in="layer")
            world.carry_out(Train(client, number * len(speeds) + client + 1, 0, work), at)
        for _ in speeds:
            event = world.next()
            assert event.at <= (at + DEADLINE_S) * (1 + 1e-12), "everything is there by the deadline"
            if isinstance(event, Arrived):
                found[number, event.client] = event.result.depth
    return found


def planned(speeds):
    """Batches by B3, and the chance by Lemma 1 that nobody reaches each layer, input first."""
    deadline_s = np.array([DEADLINE_S])
    chances = deadline_bound.missed_chances(deadline_s, SCALE, LAYERS, len(speeds))[0]
    return deadline_bound.batches_by_speed(deadline_s, SCALE, DeadlineUsers(speeds, LINKS_S))[
        0
    ], chances


def shares_missed(found):
    """Of the rounds, input layer first."""
    return np.array([(found.max(axis=1) <= LAYERS - layer).mean() for layer in range(1, LAYERS + 1)])


def poisson(rate):
    """Chances of 0 .. L layers: the last one stands for all that is deeper."""
    below = [math.exp(-rate) * rate**k / math.factorial(k) for k in range(LAYERS)]
    return np.array([*below, 1 - sum(below)])


def errors(chances):
    return np.sqrt(chances * (1 - chances) / ROUNDS)


def test_where_batches_come_out_whole_lemma_1_is_exact_and_depths_are_poisson_for_fast_and_slow():
    speeds = (10.0, 20.0, 40.0)
    batches, chances = planned(speeds)
    assert batches.tolist() == [27, 48, 60]
    found = depths(speeds, batches)
    assert np.all(np.abs(shares_missed(found) - chances) <= 4 * errors(chances))
    expected = poisson(DEADLINE_S / SCALE)
    for client in range(len(speeds)):
        shares = np.bincount(found[:, client], minlength=LAYERS + 1) / ROUNDS
        assert np.all(np.abs(shares - expected) <= 4 * errors(expected)), f"user {client}"


def test_where_batches_are_rounded_down_users_come_deeper_and_lemma_1_is_an_upper_bound():
    speeds = (0.6, 1.1, 1.3)
    batches, bound = planned(speeds)
    assert batches.tolist() == [1, 2, 1]  # of 1.62, 2.64 and 1.95
    missed = shares_missed(depths(speeds, batches))
    assert np.all(missed <= bound)
    assert missed[0] < 0.5 * bound[0]
    rates = np.array(speeds) * (DEADLINE_S - np.array(LINKS_S)) / batches
    reached_less = np.array([poisson(rate).cumsum()[:LAYERS] for rate in rates])
    exact = reached_less.prod(axis=0)[::-1]
    assert np.all(np.abs(missed - exact) <= 4 * errors(exact) + 1 / ROUNDS)
