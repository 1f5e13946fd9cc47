"""ADEL-FL: the plan is made from what the warm-up shows, kept to the second, and made anew in time."""

from itertools import pairwise

import numpy as np
import pytest

from fedpace.core.budget import Budget
from fedpace.core.commands import Aggregate, Finish, Measure, Note, SetTimer, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Left, Measured, Rates, Timer
from fedpace.core.model import ModelProfile
from fedpace.planning.deadline_bound import DeadlineConstants, DeadlineProblem, DeadlineUsers
from fedpace.planning.deadlines import plan_deadlines
from fedpace.policies.adel import ADEL, ConstantSettings

from .conftest import of

FIVE = ModelProfile.even(5, 5000, forward_share=0.0)
GIVEN = ConstantSettings(gradient=1.0, noise=4.0, smoothness=1.0)
SPEEDS = [Rates(2.0, 10, 0.1, 0.1), Rates(4.0, 10, 0.1, 0.3), Rates(8.0, 10, 0.2, 0.2)]
DECAYING = {"lr": 0.1, "decay": 0.2}


def problem(steps, rates=SPEEDS, **options):
    users = DeadlineUsers(
        [5 * 20 / one.batch_s for one in rates], [one.down_s + one.up_s for one in rates], [200] * 3
    )
    return DeadlineProblem(5, steps, users, DeadlineConstants(0.0, 1.0, 1.0, 4.0, 0.0, 1.0), **options)


def warmed(stage, at=10.0, rates=SPEEDS, train=DECAYING, constants=GIVEN, **settings):
    made = stage(ADEL, clients=len(rates), model=FIVE, train=train, constants=constants, **settings)
    for client, one in enumerate(rates):
        said = made.arrive(at, client, depth=5, steps=1, rates=one)
    return made, said


def deliver(made, at, rates):
    """Everybody's whole update comes; rates are for batches of 20, as in the warm-up."""
    for client, opened in made.open_tasks().items():
        one, size = rates[client], opened.work.batch_size
        told = Rates(one.batch_s * size / 20, 10, one.down_s, one.up_s)
        made.arrive(at, client, depth=5, steps=1, rates=told)


def rounds_of(made, said, at, count, rates=SPEEDS):
    """Lengths and batches of the following rounds, in which everybody delivers."""
    found = []
    for _ in range(count):
        timer = of(SetTimer, said)[-1]
        found.append((timer.at - at, [command.work.batch_size for command in of(Train, said)]))
        deliver(made, timer.at, rates)
        at, said = timer.at, made.tell(Timer(timer.at, timer.name))
    return found, said


def test_rounds_are_as_long_and_batches_as_large_as_the_plan_says(stage):
    made, said = warmed(stage, budget_s=130.0, rounds=6)
    expected = plan_deadlines(problem([0.1 / (1 + 0.2 * t) for t in range(1, 7)]), 120.0)
    found, last = rounds_of(made, said, 10.0, 6)
    assert [length for length, _ in found] == pytest.approx(expected.deadlines_s.tolist(), rel=1e-12)
    assert [batches for _, batches in found] == expected.batches.tolist()
    assert of(Finish, last)[0].reason == "all 6 rounds of the plan are over"
    assert sum(length for length, _ in found) <= 120.0 * (1 + 1e-12)


def test_deadlines_fall_with_the_step_size_and_are_flat_where_it_is_constant(stage):
    made, said = warmed(stage, budget_s=130.0, rounds=6)
    falling = [length for length, _ in rounds_of(made, said, 10.0, 6)[0]]
    assert all(later < earlier for earlier, later in pairwise(falling))
    made, said = warmed(stage, budget_s=130.0, rounds=6, train={"lr": 0.1})
    flat = [length for length, _ in rounds_of(made, said, 10.0, 6)[0]]
    assert flat == pytest.approx([20.0] * 6, rel=1e-9)


def test_with_steady_times_every_round_is_long_enough_for_the_whole_model(stage):
    _, said = warmed(stage, budget_s=130.0, rounds=6, times="steady")
    length = of(SetTimer, said)[-1].at - 10.0
    for command, rates in zip(of(Train, said), SPEEDS, strict=True):
        batch_s = rates.batch_s * command.work.batch_size / 20
        assert rates.down_s + batch_s + rates.up_s <= length * (1 + 1e-9)
    # With exponential times the plan for the same budget cuts closer.
    noisy = ConstantSettings(gradient=1.0, noise=400.0, smoothness=1.0)
    _, said = warmed(stage, budget_s=130.0, rounds=6, constants=noisy)
    assert any(
        rates.batch_s * command.work.batch_size / 20 > length
        for command, rates in zip(of(Train, said), SPEEDS, strict=True)
    )


def test_constants_that_are_not_given_are_measured_in_the_warm_up_and_said(stage):
    made, said = warmed(stage, budget_s=130.0, rounds=6, constants=ConstantSettings())
    assert all(command.work.estimate for command in of(Train, made.first))
    asked = {command.what: command.request for command in of(Measure, said)}
    assert set(asked) == {"gradient", "noise", "smoothness"}
    assert not of(Aggregate, said)
    made.tell(Measured(10.0, asked["gradient"], (1.0, 1.0, None)))
    made.tell(Measured(10.0, asked["noise"], (4.0, 4.0, 4.0)))
    said = made.tell(Measured(10.0, asked["smoothness"], (None, None, None)))
    assert of(Aggregate, said)[0].tasks == (1, 2, 3)
    texts = [note.text for note in of(Note, said)]
    assert "measured in the warm-up: gradient 1, noise 4" in texts
    assert "smoothness could not be measured" in texts
    expected = plan_deadlines(problem([0.1 / (1 + 0.2 * t) for t in range(1, 7)]), 120.0)
    assert [command.work.batch_size for command in of(Train, said)] == expected.batches[0].tolist()
    assert all(command.work.estimate is None for command in of(Train, said))


def test_a_factor_scales_what_was_measured(stage):
    doubled = ConstantSettings(gradient=1.0, smoothness=1.0, factors={"noise": 2.0})
    made, said = warmed(stage, budget_s=130.0, rounds=6, constants=doubled)
    said = made.tell(Measured(10.0, of(Measure, said)[0].request, (2.0, 2.0, 2.0)))
    expected = plan_deadlines(problem([0.1 / (1 + 0.2 * t) for t in range(1, 7)]), 120.0)
    assert [command.work.batch_size for command in of(Train, said)] == expected.batches[0].tolist()


def test_without_any_usable_estimate_there_still_is_a_plan(stage):
    made, said = warmed(stage, budget_s=130.0, rounds=6, constants=ConstantSettings())
    for command in of(Measure, said):
        said = made.tell(Measured(10.0, command.request, (None, None, None)))
    assert any("gradient could not be measured" in note.text for note in of(Note, said))
    # The run's batches of 20, shared out by speed: the median client's stays as it is.
    sizes = [command.work.batch_size for command in of(Train, said)]
    assert sizes[1] in (19, 20)
    assert sizes[0] > sizes[1] > sizes[2]


def test_a_client_that_slows_down_makes_the_rest_planned_anew_within_what_is_left(stage):
    made, said = warmed(stage, budget_s=130.0, rounds=6)
    slower = [SPEEDS[0], SPEEDS[1], Rates(24.0, 10, 0.2, 0.2)]
    end = of(SetTimer, said)[-1].at
    deliver(made, end, slower)
    said = made.tell(Timer(end, "round ends"))
    assert any(note.text.startswith("plan: 5 rounds") for note in of(Note, said))
    # Half of the new time a batch, half of the old.
    known = [SPEEDS[0], SPEEDS[1], Rates(16.0, 10, 0.2, 0.2)]
    expected = plan_deadlines(problem([0.1 / (1 + 0.2 * t) for t in range(2, 7)], known), 130.0 - end)
    assert [command.work.batch_size for command in of(Train, said)] == expected.batches[0].tolist()
    found, _ = rounds_of(made, said, end, 5, slower)
    assert end + sum(length for length, _ in found) <= 130.0 * (1 + 1e-12)


def test_small_changes_of_speed_keep_the_plan(stage):
    made, said = warmed(stage, budget_s=130.0, rounds=6)
    nearly = [Rates(one.batch_s * 1.05, 10, one.down_s, one.up_s) for one in SPEEDS]
    _, said = rounds_of(made, said, 10.0, 3, nearly)
    assert not [note for note in of(Note, said) if note.text.startswith("plan")]


def test_a_budget_that_is_too_small_for_all_rounds_is_used_for_as_many_as_fit(stage):
    _, said = warmed(stage, budget_s=11.5, rounds=1000)
    texts = [note.text for note in of(Note, said)]
    assert any("1.5 s are enough for" in text and "of 1000 rounds" in text for text in texts)


def test_a_budget_that_the_warm_up_used_up_ends_the_run(stage):
    _, said = warmed(stage, budget_s=10.1, rounds=5)
    assert of(Finish, said)[0].reason == "the budget of 10.1 s is spent after 1 rounds"


def test_nobody_within_the_whole_budget_ends_the_run(stage):
    made = stage(ADEL, model=FIVE, budget_s=100.0, constants=GIVEN)
    assert of(SetTimer, made.first)[0].at == pytest.approx(5.0)
    said = made.tell(Timer(5.0, "round ends"))
    assert of(SetTimer, said)[0].at == 100.0
    said = made.tell(Timer(100.0, "round ends"))
    assert of(Finish, said)[0].reason.startswith("nobody arrived within the 100 s of the budget; give")


def test_rounds_that_one_slow_link_did_not_leave_room_for_come_back_when_it_leaves(stage):
    slow = [SPEEDS[0], SPEEDS[1], Rates(2.0, 10, 2.0, 2.0)]
    made, said = warmed(stage, budget_s=60.0, rounds=40, rates=slow)
    planned = [note.text.split()[1] for note in of(Note, said) if note.text.startswith("plan")]
    assert planned == ["12"]
    task = made.open_tasks()[2].task
    made.tell(Left(11.0, 2))
    made.tell(Failed(11.0, 2, task, "the client left"))
    end = of(SetTimer, said)[-1].at
    deliver(made, end, SPEEDS)
    said = made.tell(Timer(end, "round ends"))
    planned = [note.text.split()[1] for note in of(Note, said) if note.text.startswith("plan")]
    assert planned == ["39"]


def test_a_networks_slack_is_in_the_plan(stage):
    _, said = warmed(stage, budget_s=130.0, rounds=6, slack=0.25)
    users = problem([0.1]).users
    slower = DeadlineUsers(
        [one / 1.25 for one in users.samples_per_s], [one * 1.25 for one in users.link_s], [200] * 3
    )
    steps = [0.1 / (1 + 0.2 * t) for t in range(1, 7)]
    expected = plan_deadlines(
        DeadlineProblem(5, steps, slower, DeadlineConstants(0.0, 1.0, 1.0, 4.0, 0.0, 1.0)), 120.0
    )
    assert [command.work.batch_size for command in of(Train, said)] == expected.batches[0].tolist()
    length = expected.deadlines_s[0]
    assert of(SetTimer, said)[-1].at == pytest.approx(10.0 + length)
    for command, rates in zip(of(Train, said), SPEEDS, strict=True):
        assert command.work.stop_at < 10.0 + length / 1.25 - rates.up_s
        assert command.work.stop_at > 10.0 + 0.9 * length / 1.25 - rates.up_s


def test_several_local_steps_take_as_long_as_one_would(stage):
    _, one = warmed(stage, budget_s=130.0, rounds=6)
    _, four = warmed(stage, budget_s=130.0, rounds=6, train=DECAYING | {"steps": 4})
    for single, several in zip(of(Train, one), of(Train, four), strict=True):
        assert several.work.steps == 4
        assert 4 * several.work.batch_size <= 1.3 * single.work.batch_size


def test_a_client_with_little_data_does_not_compute_longer_for_it(stage):
    made = stage(
        ADEL, clients=3, model=FIVE, samples=[3, 200, 200], constants=GIVEN, budget_s=130.0, rounds=6
    )
    for client, one in enumerate(SPEEDS):
        told = Rates(one.batch_s * (3 / 20 if client == 0 else 1), 1, one.down_s, one.up_s)
        said = made.arrive(10.0, client, depth=5, steps=1, rates=told)
    first, second, _ = of(Train, said)
    assert first.work.batch_size == 3
    rates = []
    for command, one in ((first, SPEEDS[0]), (second, SPEEDS[1])):
        window_s = command.work.stop_at - 10.0 - one.down_s
        rates.append(5 * 20 / one.batch_s * window_s / command.work.batch_size)
    assert rates[0] == pytest.approx(rates[1], rel=0.05)


def test_a_client_alone_is_planned_for_as_well(stage):
    made, said = warmed(stage, budget_s=130.0, rounds=6, rates=SPEEDS[:1])
    assert len(of(Train, said)) == 1
    found, _ = rounds_of(made, said, 10.0, 6, SPEEDS[:1])
    assert sum(length for length, _ in found) <= 120.0 * (1 + 1e-12)


def test_the_number_of_rounds_can_be_chosen(stage):
    constants = ConstantSettings(1.0, 4.0, 1.0, convexity=2.0, distance=5.0)
    _, said = warmed(
        stage, budget_s=130.0, rounds=60, choose_rounds=True, constants=constants, train={"lr": 0.1}
    )
    text = next(note.text for note in of(Note, said) if note.text.startswith("plan"))
    chosen = int(text.split()[1])
    bounds = []
    for count in (chosen - 1, chosen, chosen + 1):
        users = problem([0.1]).users
        made = DeadlineProblem(5, [0.1] * count, users, DeadlineConstants(2.0, 1.0, 1.0, 4.0, 0.0, 5.0))
        bounds.append(plan_deadlines(made, 120.0).bound)
    assert 1 < chosen < 60
    assert np.argmin(bounds) == 1


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        ({"budget_s": 0.0}, "budget_s is 0"),
        ({"budget_s": float("inf")}, "budget_s is inf"),
        ({"rounds": 0}, "rounds is 0"),
        ({"warm_up": 1.0}, "warm_up is 1"),
        ({"tolerance": -1.0}, "tolerance is -1"),
        ({"choose_rounds": True}, "needs constants.convexity"),
    ],
)
def test_wrong_settings_are_refused(settings, part):
    with pytest.raises(ConfigError, match=part):
        ADEL.Settings(**settings)


@pytest.mark.parametrize("wrong", [{"noise": -1.0}, {"gradient": 0.0}, {"factors": {"noise": 0.0}}])
def test_wrong_constants_are_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        ConstantSettings(**wrong)


def test_the_runs_time_budget_is_the_policys_where_it_has_none_of_its_own(stage):
    made = stage(ADEL, model=FIVE, constants=GIVEN, budget=Budget(time_s=100.0))
    assert of(SetTimer, made.first)[0].at == pytest.approx(5.0)


def test_an_estimate_that_is_no_measurement_is_left_out(stage):
    made, said = warmed(stage, budget_s=130.0, rounds=6, constants=ConstantSettings(1.0, None, 1.0))
    said = made.tell(Measured(10.0, of(Measure, said)[0].request, (1e200, 4.0, 4.0)))
    expected = plan_deadlines(problem([0.1 / (1 + 0.2 * t) for t in range(1, 7)]), 120.0)
    assert [command.work.batch_size for command in of(Train, said)] == expected.batches[0].tolist()


def test_a_budget_is_needed(stage):
    with pytest.raises(ConfigError, match="budget_s is not set"):
        stage(ADEL)
