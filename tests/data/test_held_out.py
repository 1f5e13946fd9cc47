"""Samples held out of each client's own."""

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.held_out import hold_out
from fedpace.data.shares import Shares


def test_every_client_gives_an_even_share_and_keeps_the_order_of_the_rest():
    shares = Shares.from_arrays([np.array([7, 3, 9, 1, 5]), np.arange(10, 30), np.array([40, 41])])
    kept, held = hold_out(shares, 0.2, seed=3)
    assert held.sizes.tolist() == [1, 4, 1]
    for whole, mine, test in zip(shares, kept, held, strict=True):
        assert sorted([*mine, *test]) == sorted(whole)
        assert mine.tolist() == [one for one in whole if one in mine]
    again = hold_out(shares, 0.2, seed=3)[1]
    assert again.places.tolist() == held.places.tolist()
    assert hold_out(shares, 0.2, seed=4)[1].places.tolist() != held.places.tolist()


def test_what_a_client_gives_does_not_depend_on_others():
    one, two = np.arange(20), np.arange(20, 60)
    _, alone = hold_out(Shares.from_arrays([one]), 0.3, seed=1)
    _, both = hold_out(Shares.from_arrays([one, two]), 0.3, seed=1)
    assert both[0].tolist() == alone[0].tolist()


def test_a_client_with_one_sample_is_named():
    shares = Shares.from_arrays([np.arange(4), np.array([8]), np.zeros(0, np.int64)])
    with pytest.raises(ConfigError, match=r"client 1 has 1 samples \(2 clients have so few\)"):
        hold_out(shares, 0.2, seed=0)
