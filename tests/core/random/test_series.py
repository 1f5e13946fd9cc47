import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.random import keyed as seeds
from fedpace.core.random import series as seeding


def same(one: np.random.Generator, other: np.random.Generator) -> bool:
    return one.bit_generator.state == other.bit_generator.state


def test_many_generators_are_those_that_numpy_makes_one_by_one():
    series = seeding.Series(5, "jitter", 3)
    assert all(
        same(series.at(n), seeds.generator(5, "jitter", n, 3)) for n in range(2 * seeding.BLOCK + 100)
    )


def test_what_is_drawn_from_one_generator_leaves_nothing_behind_for_the_next():
    series = seeding.Series(0, "x")
    series.at(1).integers(10, size=3, dtype=np.uint32)  # half of a number is kept for later
    assert same(series.at(2), seeds.generator(0, "x", 2))


@pytest.mark.parametrize("keys", [(), (0,), (4, 2)])
def test_a_series_can_be_asked_in_any_order(keys):
    series = seeding.Series(3, "sample", *keys)
    for number in (0, 1, 2, 40, 41, 7, 7, 8, 0):
        assert same(series.at(number), seeds.generator(3, "sample", number, *keys))


def test_entropy_with_leading_zeros_is_spread_as_numpy_spreads_it():
    for entropy in (0, 1, 2**32, 2**96 - 1, 2**128 - 1):
        states = seeding._states(entropy.to_bytes(16, "little"))
        state, increment = (int(high[0]) << 64 | int(low[0]) for high, low in states)
        assert np.random.PCG64DXSM(entropy).state["state"] == {"state": state, "inc": increment}


@given(st.integers(0, 10**6), st.one_of(st.integers(1, 50), st.integers(1, 2**33)))
def test_two_numbers_are_those_that_the_generator_would_give_or_none(number, bound):
    two = seeding.Series(0, "draw").two_below(number, bound)
    assert two in ((), tuple(seeds.generator(0, "draw", number).integers(bound, size=2).tolist()))


def test_two_numbers_are_nearly_always_told():
    series = seeding.Series(0, "draw")
    told = {number: series.two_below(number, 10**6) for number in range(3 * seeding.BLOCK)}
    assert sum(two == () for two in told.values()) < 20
    assert all(
        two in ((), tuple(seeds.generator(0, "draw", number).integers(10**6, size=2).tolist()))
        for number, two in told.items()
    )


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 2**32)), min_size=2, max_size=20))
def test_bounds_may_change_from_one_number_to_the_next(asked):
    series = seeding.Series(0, "draw")
    for number, bound in asked:
        two = series.two_below(number, bound)
        assert two in ((), tuple(seeds.generator(0, "draw", number).integers(bound, size=2).tolist()))
        assert two == seeding.Series(0, "draw").two_below(number, bound)
