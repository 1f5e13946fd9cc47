"""DYNAMITE: estimates become a plan for the next round, within what is left of time and money."""

import math
from dataclasses import replace

import pytest

from fedpace.core.budget import Budget
from fedpace.core.commands import Aggregate, Finish, Measure, Note, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined, Left, Measured, Rates
from fedpace.planning import coopt
from fedpace.policies.dynamic_tau import DynamicTau, drift
from fedpace.policies.dynamite import Dynamite

from .conftest import of

SAMPLES = [100, 200, 300]
SPEEDS = [40.0, 20.0, 10.0]
ANSWERS = {
    "loss": (2.0, 1.0, 3.0),
    "gradient": (1.0, 2.0, 1.5),
    "noise": (2.0, 3.0, 4.0),
    "change": (0.5, 0.6, 0.7),
    "smoothness": (4.0, 5.0, 6.0),
    "spread": (0.3, 0.2, 0.1),
}
RICH = Budget(1000.0, 500.0, (0.01,), 1.0)


def rates(client, size):
    return Rates(size / SPEEDS[client], 10, 0.25, 0.25)


def started(stage, kind=Dynamite, budget=RICH, **settings):
    return stage(
        kind, clients=3, samples=SAMPLES, budget=budget, train={"lr": 0.05, "steps": 2}, **settings
    )


def deliver(made, at):
    """Everybody's update comes."""
    for client, opened in made.open_tasks().items():
        work = opened.work
        trained = work.steps * min(work.batch_size, SAMPLES[client])
        said = made.arrive(
            at, client, steps=work.steps, rates=rates(client, work.batch_size), trained=trained
        )
    return said


def answered(made, said, at, answers=ANSWERS):
    for command in of(Measure, said):
        said = made.tell(Measured(at, command.request, answers[command.what]))
    return said


def weighted(values, samples=SAMPLES):
    return sum(d * v for d, v in zip(samples, values, strict=True)) / sum(samples)


def problem(rounds, time_s, money, answers=ANSWERS):
    curvatures = [g**2 / (2 * f) for g, f in zip(answers["gradient"], answers["loss"], strict=True)]
    return coopt.Problem(
        coopt.Clients(
            SAMPLES, [noise**2 for noise in answers["noise"]], SPEEDS, [0.5] * 3, list(SAMPLES)
        ),
        coopt.Constants(
            weighted(answers["change"]),
            weighted(answers["smoothness"]),
            weighted(curvatures),
            weighted(answers["spread"]),
            0.05,
            weighted(answers["loss"]),
        ),
        coopt.Budget(rounds, time_s, money, [0.01] * 3, 1.0),
        tau_max=50,
    )


def given(said):
    works = [command.work for command in of(Train, said)]
    return works[0].steps, [work.batch_size for work in works]


def test_the_first_round_is_one_step_with_the_runs_batch(stage):
    made = started(stage, rounds=10)
    assert given(made.first) == (1, [20, 20, 20])
    assert {command.work.estimate for command in of(Train, made.first)} == {"gradient"}


def test_after_a_round_everything_is_measured_and_then_averaged_by_samples(stage):
    made = started(stage, rounds=10)
    said = deliver(made, 4.0)
    assert {command.what for command in of(Measure, said)} == set(ANSWERS)
    assert {command.weights for command in of(Measure, said)} == {(100.0, 200.0, 300.0)}
    said = answered(made, said, 4.0)
    assert of(Aggregate, said)[0].weights == (100.0, 200.0, 300.0)


def test_the_next_round_is_cooptfls_for_what_is_left(stage):
    made = started(stage, rounds=10)
    said = answered(made, deliver(made, 4.0), 4.0)
    spent = 0.01 * 60 + 1.0
    expected = coopt.plan_next(problem(9, 996.0, 500.0 - spent))
    assert given(said) == (expected.tau, expected.batches.tolist())
    assert len(set(expected.batches.tolist())) > 1


def test_the_ablations_fix_the_steps_or_give_all_the_same_batch(stage):
    made = started(stage, rounds=10, tau=3)
    tau, batches = given(answered(made, deliver(made, 4.0), 4.0))
    assert tau == 3
    assert len(set(batches)) > 1
    made = started(stage, rounds=10, batches="uniform")
    tau, batches = given(answered(made, deliver(made, 4.0), 4.0))
    assert len(set(batches)) == 1


def test_a_client_without_usable_estimates_does_not_move_the_plan(stage):
    made = started(stage, rounds=10)
    said = answered(made, deliver(made, 4.0), 4.0)
    before = given(said)
    tau, batches = before
    spent = 0.01 * 60 + 1.0 + 0.01 * tau * sum(batches) + 1.0
    holes = {what: (None, *values[1:]) for what, values in ANSWERS.items()}
    said = answered(made, deliver(made, 20.0), 20.0, holes)
    # The others' mean stands for the first client's numbers; its variance stays as it was.
    filled = {}
    for what, (_, *others) in ANSWERS.items():
        filled[what] = (weighted(others, SAMPLES[1:]), *others)
    filled["noise"] = ANSWERS["noise"]
    curvature = [g**2 / (2 * f) for g, f in zip(ANSWERS["gradient"], ANSWERS["loss"], strict=True)]
    left = problem(8, 980.0, 500.0 - spent, filled)
    known = replace(left.constants, curvature=weighted(curvature[1:], SAMPLES[1:]))
    expected = coopt.plan_next(replace(left, constants=known))
    assert given(said) == (expected.tau, expected.batches.tolist())


def test_a_round_in_which_nobody_could_estimate_anything_keeps_what_is_known(stage):
    made = started(stage, rounds=10)
    said = answered(made, deliver(made, 4.0), 4.0)
    tau, batches = given(said)
    nothing = dict.fromkeys(ANSWERS, (None, None, None))
    spent = 0.01 * 60 + 1.0 + 0.01 * tau * sum(batches) + 1.0
    said = answered(made, deliver(made, 20.0), 20.0, nothing)
    expected = coopt.plan_next(problem(8, 980.0, 500.0 - spent))
    assert given(said) == (expected.tau, expected.batches.tolist())


def test_without_any_estimates_rounds_go_on_as_the_first(stage):
    made = started(stage, rounds=10)
    nothing = dict.fromkeys(ANSWERS, (None, None, None))
    said = answered(made, deliver(made, 4.0), 4.0, nothing)
    assert given(said) == (1, [20, 20, 20])


@pytest.mark.parametrize(
    "wild",
    [
        {"gradient": (1e9, 1e9, 1e9)},
        {"smoothness": (0.0, 0.0, 0.0)},
        {"spread": (0.0, 0.0, 0.0)},
        {"loss": (0.0, 0.0, 0.0)},
        {"change": (1e30, 1e30, 1e30)},
        {"noise": (0.0, 0.0, 0.0)},
        {"noise": (1e200, 1.0, 1.0)},
        {"smoothness": (-1.0, -2.0, -3.0)},
    ],
)
def test_degenerate_estimates_still_give_a_round_within_the_budgets(stage, wild):
    made = started(stage, rounds=10)
    said = answered(made, deliver(made, 4.0), 4.0, ANSWERS | wild)
    tau, batches = given(said)
    assert tau >= 1
    assert all(1 <= size <= most for size, most in zip(batches, SAMPLES, strict=True))
    assert 0.01 * tau * sum(batches) + 1.0 <= 500.0


def test_it_ends_after_its_rounds(stage):
    made = started(stage, rounds=1)
    said = answered(made, deliver(made, 4.0), 4.0)
    assert of(Finish, said)[0].reason == "1 rounds are over"


def test_money_that_is_left_pays_for_a_last_round_of_fewer_steps(stage):
    made = started(
        stage, rounds=50, tau=4, budget=Budget(money=5.0, sample_cost=(0.01,), round_cost=1.0)
    )
    said = made.first
    at, spent = 0.0, 0.0
    while not of(Finish, said):
        tau, batches = given(said)
        spent += 0.01 * tau * sum(batches) + 1.0
        at += 4.0
        said = answered(made, deliver(made, at), at)
        assert spent <= 5.0 * (1 + 1e-9)
    assert "the money is spent" in of(Finish, said)[0].reason
    assert 5.0 - spent < 1.03  # not even one more round with one sample each


def test_a_round_that_would_not_end_in_time_is_not_begun(stage):
    made = started(stage, rounds=50, budget=Budget(time_s=10.0))
    said = answered(made, deliver(made, 9.9), 9.9)
    assert "the time is over" in of(Finish, said)[0].reason


def test_what_arrives_over_time_counts_in_weights_and_batches(stage):
    made = started(stage, rounds=10)
    for client, opened in made.open_tasks().items():
        said = made.arrive(
            4.0, client, steps=1, rates=rates(client, opened.work.batch_size), seen=1000, trained=20
        )
    assert of(Measure, said)[0].weights == (1000.0,) * 3
    batches = given(answered(made, said, 4.0))[1]
    assert all(size <= most for size, most in zip(batches, SAMPLES, strict=True))  # what they hold


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"tau_max": 0}, {"tau": 0}, {"epsilon": -1.0}])
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Dynamite.Settings(**wrong)


# Dynamic tau


def test_dynamic_tau_keeps_the_batches_and_chooses_the_steps(stage):
    made = started(stage, DynamicTau, rounds=100)
    assert given(made.first) == (1, [20, 20, 20])
    said = answered(made, deliver(made, 4.0), 4.0)
    tau, batches = given(said)
    assert batches == [20, 20, 20]
    policy = made.session.policy
    spent, costs = 0.01 * 60 + 1.0, {}
    for one in range(1, 11):
        money = (500.0 - spent) / (0.01 * one * 60 + 1.0)
        time = 996.0 / (one * 20 / 10.0 + 0.5)
        costs[one] = policy.bound(one, min(money, time, 99.0))
    assert tau == min(costs, key=costs.get)


def test_with_more_drift_dynamic_tau_takes_fewer_steps(stage):
    taus = []
    for spread in (0.001, 0.1, 10.0, 1000.0):
        made = started(stage, DynamicTau, rounds=100)
        apart = ANSWERS | {"spread": (spread,) * 3}
        taus.append(given(answered(made, deliver(made, 4.0), 4.0, apart))[0])
    assert taus == sorted(taus, reverse=True)
    assert taus[0] > 1
    assert taus[-1] == 1


def test_where_all_clients_are_new_dynamic_tau_goes_on(stage):
    made = started(stage, DynamicTau, budget=Budget(time_s=1000.0))
    answered(made, deliver(made, 4.0), 4.0)
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


def test_steps_that_do_not_fit_are_trimmed_and_that_is_said(stage):
    made = started(stage, DynamicTau, budget=Budget(time_s=30.0), phi=1e-6, growth=100.0)
    tight = ANSWERS | {"spread": (1e-6,) * 3}
    said = answered(made, deliver(made, 20.0), 20.0, tight)
    assert given(said)[0] == 4  # 10 s are left, of which a step of the slowest takes 2 and its link 0.5
    assert not [note for note in of(Note, said) if "steps" in note.text]
