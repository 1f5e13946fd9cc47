"""DYNAMITE: estimates become a plan for the next round, within what is left of time and money."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedpace.core.budget import Budget
from fedpace.core.commands import Aggregate, Finish, Measure, Note, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Measured, Rates
from fedpace.planning import coopt, coopt_bound
from fedpace.policies.batches import Uniform
from fedpace.policies.dynamite import Dynamite
from fedpace.policies.shared.estimates import LossEstimates
from fedpace.policies.shared.stepped import Device

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
SLOPES = ANSWERS | {"slope": (1.0, 2.0, 3.0)}


def rates(client, size):
    return Rates(size / SPEEDS[client], 10, 0.25, 0.25)


def started(stage, kind=Dynamite, budget=RICH, **settings):
    return stage(
        kind, clients=3, samples=SAMPLES, budget=budget, train={"lr": 0.05, "steps": 2}, **settings
    )


def deliver(made, began=0.0, passes=0, sent_s=0.0, factor=1.0, **more):
    """Everybody's update comes when its rates say; passes, sent_s: of estimates. Until when it took."""
    ends = {}
    for client, opened in made.open_tasks().items():
        work, told = opened.work, rates(client, opened.work.batch_size)
        ends[client] = began + factor * (0.5 + (work.steps + passes) * told.batch_s + sent_s)
    for client, at in sorted(ends.items(), key=lambda end: end[1]):
        work = made.open_tasks()[client].work
        trained = work.steps * work.batch_size
        said = made.arrive(
            at, client, steps=work.steps, rates=rates(client, work.batch_size), trained=trained, **more
        )
    return said, at


def answered(made, delivered, answers=SLOPES):
    """What it says to a round's updates, and when."""
    said, at = delivered
    updates = [update.client for update in made.session.policy._arrived]
    for command in of(Measure, said):
        values = tuple(answers[command.what][client] for client in updates)
        said = made.tell(Measured(at, command.request, values))
    return said


def weighted(values, samples=SAMPLES):
    return sum(d * v for d, v in zip(samples, values, strict=True)) / sum(samples)


def clean(answers, sizes=(20, 20, 20), samples=SAMPLES):
    """c and delta^2 without the noise of batches."""
    noise = [root**2 / size for root, size in zip(answers["noise"], sizes, strict=True)]
    shares = [number / sum(samples) for number in samples]
    common = sum(share**2 * own for share, own in zip(shares, noise, strict=True))
    slopes = zip(answers["gradient"], answers["loss"], noise, strict=True)
    c = weighted([(g**2 - own) / (2 * f) for g, f, own in slopes], samples)
    c_least = 0.05 * weighted(
        [g**2 / (2 * f) for g, f in zip(answers["gradient"], answers["loss"], strict=True)], samples
    )
    apart = zip(answers["spread"], shares, noise, strict=True)
    delta = weighted([d**2 - (1 - 2 * p) * own - common for d, p, own in apart], samples)
    return max(c, c_least), max(delta, 0.05 * weighted([d**2 for d in answers["spread"]], samples))


def problem(rounds, time_s, money, answers=ANSWERS, link_s=0.5, extra=0.0):
    c, delta = clean(answers)
    return coopt_bound.CooptProblem(
        coopt_bound.CooptClients(
            SAMPLES,
            [noise**2 for noise in answers["noise"]],
            SPEEDS,
            [link_s] * 3,
            list(SAMPLES),
            [extra] * 3,
        ),
        coopt_bound.CooptConstants(
            weighted(answers["change"]),
            weighted(answers["smoothness"]),
            c,
            math.sqrt(delta),
            0.05,
            weighted(answers["loss"]),
        ),
        coopt_bound.CooptBudget(rounds, time_s, money, [0.01] * 3, 1.0),
        tau_max=50,
    )


def evened(plan):
    """A plan's steps and batches; a client that goes through more than it holds has equal ones."""
    sizes = []
    for size, held in zip(plan.batches.tolist(), SAMPLES, strict=True):
        parts = -(-held // size)
        sizes.append(-(-held // parts) if plan.tau * size > held else size)
    return plan.tau, sizes


def given(said):
    works = [command.work for command in of(Train, said)]
    return works[0].steps, [work.batch_size for work in works]


def test_the_first_round_is_one_step_with_the_runs_batch(stage):
    made = started(stage, rounds=10)
    assert given(made.first) == (1, [20, 20, 20])
    assert {command.work.estimate for command in of(Train, made.first)} == {"gradient"}


def test_after_a_round_everything_is_measured_and_then_averaged_by_samples(stage):
    made = started(stage, rounds=10)
    said, at = deliver(made)
    assert {command.what for command in of(Measure, said)} == set(ANSWERS)
    assert {command.weights for command in of(Measure, said)} == {(100.0, 200.0, 300.0)}
    said = answered(made, (said, at))
    assert of(Aggregate, said)[0].weights == (100.0, 200.0, 300.0)


# Less noise than the gradients' distances, and more.
@pytest.mark.parametrize("answers", [ANSWERS | {"spread": (1.3, 1.2, 1.1)}, ANSWERS])
def test_the_next_round_is_cooptfls_for_what_is_left(stage, answers):
    made = started(stage, rounds=10)
    said = answered(made, deliver(made), answers)
    spent = 0.01 * 60 + 1.0
    expected = coopt.plan_next(problem(9, 1000.0 - 2.5, 500.0 - spent, answers))
    assert given(said) == evened(expected)
    assert len(set(expected.batches.tolist())) > 1


def test_the_time_that_estimates_take_is_planned_for(stage):
    tight = Budget(time_s=40.0)
    made = started(stage, rounds=10, budget=tight)
    said = answered(made, deliver(made, passes=3, sent_s=0.25))
    left = problem(9, 40.0 - 8.75, None, link_s=0.75, extra=3.0)
    without = problem(9, 40.0 - 8.75, None, link_s=0.5)
    free = replace(left.budget, sample_cost=0.0, round_cost=0.0)
    expected = coopt.plan_next(replace(left, budget=free))
    assert given(said) == evened(expected)
    assert given(said) != evened(coopt.plan_next(replace(without, budget=free)))


def test_estimates_now_and_then_are_planned_for_by_their_share(stage):
    made = started(stage, rounds=10, estimate_every=4, budget=Budget(time_s=40.0))
    said = answered(made, deliver(made, passes=3, sent_s=0.25))
    assert {command.work.estimate for command in of(Train, said)} == {None}
    left = problem(9, 40.0 - 8.75, None, link_s=0.5 + 0.25 / 4, extra=3.0 / 4)
    free = replace(left.budget, sample_cost=0.0, round_cost=0.0)
    assert given(said) == evened(coopt.plan_next(replace(left, budget=free)))
    asked, at = [], 8.75
    for _ in range(8):
        asked.append({command.work.estimate for command in of(Train, said)} == {"gradient"})
        passes, sent_s = (3, 0.25) if asked[-1] else (0, 0.0)
        delivered = deliver(made, at, passes=passes, sent_s=sent_s)
        assert bool(of(Measure, delivered[0])) == asked[-1]
        said, at = answered(made, delivered), delivered[1]
    assert asked == [False, False, False, True, False, False, False, True]
    assert at <= 40.0


def test_rounds_that_take_longer_than_foretold_are_planned_as_such(stage):
    taken = {}
    for factor in (1.0, 1.5):
        made = started(stage, rounds=10, budget=Budget(time_s=60.0))
        said, at, rounds = made.first, 0.0, 0
        while not of(Finish, said):
            delivered = deliver(made, at, factor=factor)
            said, at, rounds = answered(made, delivered), delivered[1], rounds + 1
        taken[factor] = at, rounds
        assert rounds == 10
        assert 60.0 * 0.8 < at <= 60.0
    assert taken[1.0] != taken[1.5]


def test_a_single_late_round_does_not_end_a_run(stage):
    made = started(stage, Uniform, budget=Budget(time_s=100.0))
    said, at = made.first, 0.0
    for factor in (1.0, 1.0, 1.0, 8.0):
        said, at = deliver(made, at, factor=factor)
    assert at == pytest.approx(3 * 4.5 + 36.0)
    assert given(said) == (2, [20, 20, 20])


def test_noise_that_estimates_contain_is_taken_out_of_them():
    """Gradients g_i plus noise of variance M_i / s: c and delta are those of the g_i."""
    rng, clients, numbers, size, rounds = np.random.default_rng(0), 6, 40, 10, 400
    true = rng.normal(size=(clients, numbers)) * 0.1 + 0.2
    samples = [50, 100, 150, 200, 250, 300]
    devices = {client: Device(samples[client], 10**6, 1.0) for client in range(clients)}
    shares, variance = np.array(samples) / sum(samples), 4.0
    found = LossEstimates(0.1)
    cs, deltas = [], []
    for _ in range(rounds):
        seen = true + rng.normal(size=true.shape) * math.sqrt(variance / size / numbers)
        norms = np.linalg.norm(seen, axis=1)
        spreads = np.linalg.norm(seen - shares @ seen, axis=1)
        ones = dict.fromkeys(range(clients), 1.0)
        answers = {
            "loss": ones, "change": ones, "smoothness": ones, "noise": dict.fromkeys(ones, 2.0),
            "gradient": dict(enumerate(norms)), "spread": dict(enumerate(spreads)),
        }  # fmt: skip
        found.update(answers, devices, dict.fromkeys(range(clients), size))
        cs.append(found.curvature)
        deltas.append(found.divergence**2)
    c = shares @ (np.linalg.norm(true, axis=1) ** 2) / 2
    delta = shares @ np.linalg.norm(true - shares @ true, axis=1) ** 2
    assert np.mean(cs) == pytest.approx(c, rel=0.02)
    assert np.mean(deltas) == pytest.approx(delta, rel=0.05)
    assert shares @ spreads**2 > 1.5 * delta  # as it was measured


def test_variances_are_averaged_over_rounds_and_begin_anew_when_the_loss_jumps():
    device = {0: Device(100, 100, 1.0)}
    found = LossEstimates(0.1)

    def tell(loss, noise):
        answers = {what: {0: 1.0} for what in ("change", "smoothness", "gradient", "spread")}
        found.update(answers | {"loss": {0: loss}, "noise": {0: noise}}, device, {0: 10})
        return found.variance[0]

    assert tell(1.0, 2.0) == 4.0
    assert tell(0.9, 3.0) == pytest.approx(0.8 * 4.0 + 0.2 * 9.0)
    assert tell(0.95, 2.0) == pytest.approx(0.8 * 5.0 + 0.2 * 4.0)
    assert tell(1.2, 6.0) == 36.0


def test_the_ablations_fix_the_steps_or_give_all_the_same_batch(stage):
    made = started(stage, rounds=10, tau=3)
    tau, batches = given(answered(made, deliver(made)))
    assert tau == 3
    assert len(set(batches)) > 1
    tight = Budget(1000.0, 40.0, (0.01,), 1.0)  # batches are smaller than what anybody holds
    made = started(stage, rounds=10, batches="uniform", budget=tight)
    tau, batches = given(answered(made, deliver(made)))
    assert len(set(batches)) == 1


def test_a_client_without_usable_estimates_does_not_move_the_plan(stage):
    """The plan is the one of a round in which everybody else said the same."""
    made = started(stage, rounds=10)
    tau, batches = given(answered(made, deliver(made)))
    spent = 0.01 * 60 + 1.0 + 0.01 * tau * sum(batches) + 1.0
    holes = {what: (None, *values[1:]) for what, values in ANSWERS.items()}
    delivered = deliver(made, 2.5)
    known = made.session.policy.estimates
    before = replace(known, variance=dict(known.variance))
    said = answered(made, delivered, holes)
    assert known.variance == before.variance
    assert known.loss == pytest.approx(weighted(ANSWERS["loss"][1:], SAMPLES[1:]))
    assert known.quadratic == pytest.approx(weighted(ANSWERS["change"][1:], SAMPLES[1:]))
    left = problem(8, 1000.0 - delivered[1], 500.0 - spent)
    constants = replace(
        left.constants,
        quadratic=known.quadratic,
        smoothness=weighted(ANSWERS["smoothness"][1:], SAMPLES[1:]),
        curvature=known.curvature,
        divergence=known.divergence,
        gap=known.loss,
    )
    assert given(said) == evened(coopt.plan_next(replace(left, constants=constants)))


def test_a_round_in_which_nobody_could_estimate_anything_keeps_what_is_known(stage):
    made = started(stage, rounds=10)
    tau, batches = given(answered(made, deliver(made)))
    nothing = dict.fromkeys(ANSWERS, (None, None, None))
    spent = 0.01 * 60 + 1.0 + 0.01 * tau * sum(batches) + 1.0
    delivered = deliver(made, 2.5)
    said = answered(made, delivered, nothing)
    expected = coopt.plan_next(problem(8, 1000.0 - delivered[1], 500.0 - spent))
    assert given(said) == evened(expected)


def test_a_loss_that_jumps_in_a_round_without_noise_keeps_the_last_variances(stage):
    """As with batches of one sample; all variances were cleared, and the next plan had none."""
    made = started(stage, rounds=10)
    answered(made, deliver(made))
    known = made.session.policy.estimates
    before = dict(known.variance)
    jumped = ANSWERS | {"loss": tuple(one + 10 for one in ANSWERS["loss"]), "noise": (None,) * 3}
    answered(made, deliver(made, 2.5), jumped)
    assert known.variance == before


def test_without_any_estimates_rounds_go_on_as_the_first(stage):
    made = started(stage, rounds=10)
    nothing = dict.fromkeys(ANSWERS, (None, None, None))
    assert given(answered(made, deliver(made), nothing)) == (1, [20, 20, 20])


@pytest.mark.parametrize(
    "wild",
    [
        {"gradient": (1e9, 1e9, 1e9)},
        {"gradient": (1e100, 1e100, 1e100), "loss": (1e-300, 1e-300, 1e-300)},
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
    delivered = deliver(made)
    for _ in range(2):
        said = answered(made, delivered, ANSWERS | wild)
        tau, batches = given(said)
        assert tau >= 1
        assert all(1 <= size <= most for size, most in zip(batches, SAMPLES, strict=True))
        assert 0.01 * tau * sum(batches) + 1.0 <= 500.0
        delivered = deliver(made, delivered[1])


def test_it_ends_after_its_rounds(stage):
    made = started(stage, rounds=1)
    assert of(Finish, answered(made, deliver(made)))[0].reason == "1 rounds are over"


def test_rounds_that_nobody_can_pay_are_refused(stage):
    budget = Budget(money=50.0, sample_cost=(0.01,), round_cost=1.0)
    with pytest.raises(ConfigError, match=r"rounds is 50, which cost 50.*fewer than 50"):
        started(stage, rounds=50, budget=budget)


def test_money_for_fewer_rounds_than_planned_gives_fewer_that_are_worth_it(stage):
    """Of 30 rounds, 20 of one sample each could be paid: then ten of more are given."""
    made = started(stage, rounds=30, budget=Budget(money=32.0, sample_cost=(0.2,), round_cost=1.0))
    said = answered(made, deliver(made))
    tau, batches = given(said)
    assert any("are enough for" in note.text for note in of(Note, said))
    assert tau * sum(batches) >= 6


def test_money_that_is_left_pays_for_a_last_round_of_fewer_steps(stage):
    made = started(
        stage, rounds=50, tau=4, budget=Budget(money=55.0, sample_cost=(0.01,), round_cost=1.0)
    )
    said = made.first
    at, spent = 0.0, 0.0
    while not of(Finish, said):
        tau, batches = given(said)
        spent += 0.01 * tau * sum(batches) + 1.0
        delivered = deliver(made, at)
        said, at = answered(made, delivered), delivered[1]
        assert spent <= 55.0 * (1 + 1e-9)
    reason = of(Finish, said)[0].reason
    assert "the money is spent" in reason or reason == "50 rounds are over"
    assert 55.0 - spent < 1.03  # not even one more round with one sample each


def test_a_round_that_would_not_end_in_time_is_not_begun(stage):
    made = started(stage, rounds=50, budget=Budget(time_s=10.0))
    said = answered(made, deliver(made, began=7.4))
    assert "the time is over" in of(Finish, said)[0].reason


def test_what_arrives_over_time_counts_in_weights_and_batches(stage):
    made = started(stage, rounds=10)
    said, at = deliver(made, seen=1000)
    assert of(Measure, said)[0].weights == (1000.0,) * 3
    batches = given(answered(made, (said, at)))[1]
    assert all(size <= most for size, most in zip(batches, SAMPLES, strict=True))  # what they hold


@pytest.mark.parametrize(
    "wrong", [{"rounds": 0}, {"tau_max": 0}, {"tau": 0}, {"epsilon": -1.0}, {"estimate_every": 0}]
)
def test_wrong_settings_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Dynamite.Settings(**wrong)
