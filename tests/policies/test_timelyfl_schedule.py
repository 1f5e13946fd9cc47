"""TimelyFL's scheduler as a pure function: intervals, epochs and fractions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.errors import ConfigError
from fedpace.policies.timelyfl import schedule

# Client -> (unit compute, unit communication): the specification's worked example.
A, B, C, D = (10.0, 2.0), (4.0, 1.0), (30.0, 10.0), (5.0, 15.0)

durations = st.floats(1e-3, 1e4)
fleets = st.lists(st.tuples(durations, durations, durations), min_size=1, max_size=30)


def test_the_worked_example_of_the_specification():
    plan = schedule(*zip(A, B, C, D, strict=True), k=2)
    assert plan.interval_s == 12
    assert plan.epochs == (1, 2, 1, 1)
    assert plan.fractions == pytest.approx((1, 1, 0.3, 0.6))
    assert plan.report_s == pytest.approx((10, 11, 9, 3))


@given(fleets, st.data())
def test_exactly_k_clients_train_everything_and_the_others_one_epoch(fleet, data):
    compute, comm, down = map(np.array, zip(*fleet, strict=True))
    total = down + compute + comm
    k = data.draw(st.integers(1, len(fleet)))
    plan = schedule(compute, comm, k, down)
    full = [fraction == 1.0 for fraction in plan.fractions]
    assert sum(full) == (total <= plan.interval_s).sum()
    if len(set(total.tolist())) == len(fleet):
        assert sum(full) == k
    assert all(e == 1 for e, whole in zip(plan.epochs, full, strict=True) if not whole)


@given(fleets, st.data())
def test_by_its_own_estimate_nobody_is_late(fleet, data):
    compute, comm, down = map(np.array, zip(*fleet, strict=True))
    plan = schedule(compute, comm, data.draw(st.integers(1, len(fleet))), down)
    epochs, fractions = np.array(plan.epochs), np.array(plan.fractions)
    asked = fractions > 0
    needed = down + fractions * (epochs * compute + comm)  # equation 1
    assert (needed[asked] <= plan.interval_s * (1 + 1e-8)).all()
    assert (np.array(plan.report_s) + fractions * comm <= plan.interval_s * (1 + 1e-12)).all()


@given(fleets, st.data(), st.integers(-20, 20))
def test_scaling_all_times_changes_neither_epochs_nor_fractions(fleet, data, exponent):
    compute, comm, down = map(np.array, zip(*fleet, strict=True))
    k = data.draw(st.integers(1, len(fleet)))
    plan, scaled = (schedule(compute * c, comm * c, k, down * c) for c in (1.0, 2.0**exponent))
    assert plan.epochs == scaled.epochs
    assert plan.fractions == scaled.fractions


def test_an_epoch_that_fits_exactly_is_not_lost_to_rounding():
    assert schedule([0.1, 0.3], [0.7, 0.7], k=2).epochs == (3, 1)


def test_a_client_that_cannot_download_in_time_has_fraction_zero():
    assert schedule([1, 1], [1, 1], k=1, unit_down_s=[0, 5]).fractions == (1.0, 0.0)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (([1, 2], [1, 1], 3), "k is 3, but 2 clients are sampled; set k between 1 and 2"),
        (([1, 2], [1, 1], 0), "k is 0"),
        (([1, -2], [1, 1], 1), "none negative"),
        (([1, 0], [1, 1], 1), "unit compute time is 0"),
        (([1, 2], [1], 1), "2 compute, 1 communication"),
        (([1, float("nan")], [1, 1], 1), "finite"),
    ],
)
def test_the_scheduler_refuses_what_it_cannot_plan(arguments, complaint):
    with pytest.raises(ConfigError, match=complaint):
        schedule(*arguments)
