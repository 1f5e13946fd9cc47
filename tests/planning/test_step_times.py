"""Times of steps by their size: what is made of the steps that were measured."""

import pytest

from fedpace.planning.beats import part_of_batch
from fedpace.planning.step_times import StepTime


def steps(*measured):
    """What is known after steps of (size, seconds)."""
    known = StepTime(*measured[0])
    for size, seconds in measured[1:]:
        known = known.then(size, seconds)
    return known


def test_a_step_takes_as_long_as_its_size_says_until_another_is_measured():
    assert StepTime(20, 3.0).of(5) == 0.75
    assert StepTime(20, 3.0).of(20) == 3.0


def test_two_sizes_show_what_a_step_takes_however_small_it_is():
    known = steps((20, 3.0), (5, 1.5))
    assert known.fixed_s == pytest.approx(1.0)
    assert known.of(10) == pytest.approx(2.0)
    assert known.of(20) == pytest.approx(3.0)
    assert known.fixed_share(20) == pytest.approx(1 / 3)


def test_times_that_vary_a_little_show_nothing_of_it():
    known = steps((20, 1.0), (10, 0.6), (10, 0.45), (5, 0.2))
    assert known.fixed_s == 0.0
    assert known.of(20) == pytest.approx(0.8)


def test_a_client_that_becomes_slower_takes_longer_in_all_that_it_does():
    known = steps((20, 3.0), (5, 1.5), (5, 3.0))
    assert (known.fixed_s, known.of(20)) == (pytest.approx(2.0), pytest.approx(6.0))


def test_what_no_fixed_part_explains_is_a_change_of_speed():
    slower, quicker = steps((20, 1.0), (10, 5.0)), steps((10, 6.0), (20, 1.0))
    assert (slower.fixed_s, slower.of(20)) == (0.0, 10.0)
    assert (quicker.fixed_s, quicker.of(10)) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("fixed_s", "sample_s", "whole", "room_s"),
    [(0.9, 0.005, 32, 1.0), (1.0, 0.1, 20, 2.8), (0.0, 0.1, 20, 0.8), (0.2, 0.02, 16, 0.39)],
)
def test_sizes_come_to_the_largest_half_that_fits(fixed_s, sample_s, whole, room_s):
    """Also after a step that took three times as long as it should."""
    best = max(size for n in range(6) if fixed_s + sample_s * (size := whole // 2**n) <= room_s)
    known, size, sizes = StepTime(whole, fixed_s + sample_s * whole), whole, []
    for number in range(14):
        whole_s, fixed = known.of(whole), known.fixed_share(whole)
        amount = (room_s / whole_s - fixed) / (1 - fixed) + 1e-9
        size = part_of_batch(whole, amount) if 0 < amount < 1 else max(size // 2, 1)
        known = known.then(size, (fixed_s + sample_s * size) * (3 if number == 5 else 1))
        sizes.append(size)
    assert sizes[4] == best
    assert sizes[-1] == best
