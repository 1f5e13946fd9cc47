"""Steps of one model of the server."""

import math

import torch

from fedpace.learn.model.weights import Weights
from fedpace.learn.server.aggregate import AggregatedUpdate
from fedpace.learn.server.slot import ModelSlot, move_buffers
from fedpace.learn.settings import ServerSettings
from tests.learn.server.test_combining_widths import END, LAYOUT

NOTHING = torch.empty(0)


def slot(**settings):
    zeros = torch.zeros(END.params), torch.zeros(END.buffers), torch.zeros(END.counters).long()
    return ModelSlot(LAYOUT, Weights(*zeros), ServerSettings(**settings))


def aggregated(depth, held=None):
    """A delta of 1 everywhere, buffers half the way to 2, counters at 7."""
    start = LAYOUT.start(depth)
    params, buffers, counters = (
        torch.ones(last - first) for first, last in zip(start, END, strict=True)
    )
    return AggregatedUpdate(depth, params, 2 * buffers, buffers / 2, 7 * counters.long(), held)


def test_a_step_moves_the_layers_that_were_trained_and_no_others():
    one, start = slot(), LAYOUT.start(2)
    one.step(aggregated(2), None)
    for moved, first in zip(vars(one.weights).values(), start, strict=True):
        assert not moved[:first].any()
    assert set(one.weights.params[start.params :].tolist()) == {1.0}
    assert set(one.weights.buffers[start.buffers :].tolist()) <= {1.0}
    assert set(one.weights.counters[start.counters :].tolist()) <= {7}


def test_numbers_that_nobody_holds_stay():
    one, held = slot(optimiser="fedavgm"), torch.arange(END.params) % 3 == 0
    one.step(aggregated(5, held), None)
    assert torch.equal(one.weights.params, held.float())


def test_a_learning_rate_is_that_of_one_step():
    one = slot(lr=0.5)
    for lr, expected in ((0.25, 0.25), (None, 0.75)):
        one.step(aggregated(5), lr)
        assert set(one.weights.params.tolist()) == {expected}


def test_buffers_that_do_not_change_may_be_infinite():
    before = torch.tensor([-math.inf, 1.0, -math.inf, 0.0])
    means, shares = torch.tensor([-math.inf, 3.0, 5.0, 4.0]), torch.tensor([1.0, 0.5, 0.0, 1.0])
    given = AggregatedUpdate(1, NOTHING, means, shares, NOTHING.long())
    assert move_buffers(before, given).tolist() == [-math.inf, 2.0, -math.inf, 4.0]
