"""Dynamic tau (Wang et al.): steps by the clients' drift and what is left of the budgets."""

import math

import pytest

from fedpace.core.budget import Budget
from fedpace.core.commands import Note, Train
from fedpace.core.events import Failed, Joined, Left
from fedpace.policies.dynamic_tau import DynamicTau, drift
from tests.policies.conftest import of
from tests.policies.test_dynamite import (
    ANSWERS,
    SLOPES,
    answered,
    clean,
    deliver,
    given,
    started,
    weighted,
)


def test_dynamic_tau_keeps_the_batches_and_chooses_the_steps_for_the_whole_budget(stage):
    made = started(stage, DynamicTau, rounds=100)
    assert given(made.first) == (1, [20, 20, 20])
    tau, batches = given(answered(made, deliver(made)))
    assert batches == [20, 20, 20]
    policy, costs = made.session.policy, {}
    for one in range(1, 11):
        money = 500.0 / (0.01 * one * 60 + 1.0)
        time = 1000.0 / (one * 20 / 10.0 + 0.5)
        costs[one] = policy.bound(one, min(money, time, 100.0))
    assert tau == min(costs, key=costs.get)


def test_dynamic_taus_bound_is_wangs(stage):
    made = started(stage, DynamicTau, rounds=100, phi=0.01)
    answered(made, deliver(made))
    _, delta = clean(ANSWERS)
    rho, h = (
        weighted(SLOPES["slope"]),
        drift(3, 0.05, weighted(ANSWERS["smoothness"]), math.sqrt(delta)),
    )
    scale = 0.05 * 0.01
    first = 1 / (2 * scale * 150)
    expected = first + math.sqrt(first**2 + rho * h / (scale * 3)) + rho * h
    assert made.session.policy.bound(3, 50.0) == pytest.approx(expected)


def test_with_more_drift_dynamic_tau_takes_fewer_steps(stage):
    taus = []
    for spread in (0.001, 10.0, 1000.0, 100000.0):
        made = started(stage, DynamicTau, rounds=100)
        apart = SLOPES | {"spread": (spread,) * 3}
        taus.append(given(answered(made, deliver(made), apart))[0])
    assert taus == sorted(taus, reverse=True)
    assert taus[0] > 1
    assert taus[-1] == 1


def test_where_all_clients_are_new_dynamic_tau_goes_on(stage):
    made = started(stage, DynamicTau, budget=Budget(time_s=1000.0))
    answered(made, deliver(made))
    for client in range(3):
        task = made.open_tasks()[client].task
        made.tell(Left(5.0, client))
        made.tell(Failed(5.0, client, task, "the client left"))
    made.session.policy.devices.clear()
    assert len(of(Train, made.tell(Joined(6.0, 1, 200)))) == 1


def test_drift_is_none_for_one_step_and_grows(stage):
    assert drift(1, 0.1, 5.0, 2.0) == pytest.approx(0.0, abs=1e-12)
    grown = [drift(tau, 0.1, 5.0, 2.0) for tau in range(1, 20)]
    assert grown == sorted(grown)
    assert drift(3, 0.1, 5.0, 2.0) == pytest.approx(2 / 5 * (1.5**3 - 1) - 0.1 * 2 * 3)
    assert drift(10**6, 1.0, 1e6, 1.0) == math.inf
    assert drift(5, 0.1, 0.0, 2.0) == 0.0
    assert drift(1, 1e6, 7.0, 1e30) == 0.0  # -7e20 by rounding


def test_steps_that_do_not_fit_are_trimmed_and_that_is_said(stage):
    """10 s are left, of which a step of the slowest takes 2 and its link 0.5."""
    made = started(stage, DynamicTau, budget=Budget(time_s=12.5), phi=1e-6, growth=100.0, tau_max=6)
    tight = SLOPES | {"spread": (1e-6,) * 3}
    said = answered(made, deliver(made), tight)
    assert given(said)[0] == 4
    assert "4 of 6 steps: that is what the budgets allow" in [note.text for note in of(Note, said)]
