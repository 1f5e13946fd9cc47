"""Rates for whole batches, learned from batches of any size."""

import pytest

from fedpace.core.events import Rates
from fedpace.policies.shared.whole_batches import WholeBatchRates

QUARTER, WHOLE = 16, 64
"""Samples of a batch."""


def of_client(held=200):
    """The rates of client 7, which has so many samples, with batches of 64."""
    return WholeBatchRates(WHOLE, held={7: held}.__getitem__)


def measured(batch_s, batches):
    return Rates(batch_s, batches, down_s=2.0, up_s=3.0, latency_s=0.5)


def test_what_was_measured_with_whole_batches_is_as_it_is():
    """Also the batches of an epoch: a client may leave out its last few samples."""
    rates = of_client()
    rates.learn(7, measured(1.0, 3), WHOLE)
    assert rates[7] == measured(1.0, 3)


def test_after_a_part_of_a_batch_an_epoch_has_as_many_batches_as_hold_the_clients_data():
    """A quarter in a second is a batch in four, of which 200 samples are four and not thirteen."""
    rates = of_client()
    rates.learn(7, measured(1.0, 13), QUARTER)
    assert rates[7] == measured(4.0, 4)


def test_what_every_step_takes_is_told_apart_by_two_sizes():
    """Steps of 1.5 s and of 3 s: one of them is the same for both, and the rest goes by samples."""
    rates = of_client()
    rates.learn(7, measured(3.0, 4), WHOLE)
    rates.learn(7, measured(1.5, 13), QUARTER)
    assert rates[7].batch_s == pytest.approx(3.0)
    assert rates.fixed_share(7) == pytest.approx(1 / 3)


def test_a_client_with_fewer_samples_than_a_batch_has_whole_batches_of_them():
    rates = of_client(held=5)
    assert rates.whole(7) == 5
    rates.learn(7, measured(1.0, 1), 5)
    assert rates[7] == measured(1.0, 1)
    rates.learn(7, measured(0.4, 3), 2)
    assert rates[7] == measured(pytest.approx(1.0), 1)


def test_a_client_without_samples_has_batches_of_one():
    assert of_client(held=0).whole(7) == 1


def test_who_is_forgotten_is_unknown_but_what_its_steps_take_is_kept():
    rates = of_client()
    rates.learn(7, measured(3.0, 4), WHOLE)
    rates.learn(7, measured(1.5, 13), QUARTER)
    before = rates.fixed_share(7)
    rates.forget(7)
    assert 7 not in rates
    assert rates.fixed_share(7) == before > 0
    rates.learn(7, measured(1.5, 13), QUARTER)
    assert rates[7].batch_s == pytest.approx(3.0)
