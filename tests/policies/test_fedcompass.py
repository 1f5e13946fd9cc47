"""FedCompass against the paper: its figures step by step, its speeds, and its faults.

Times of the golden runs are minutes, as in the paper's Figures 1 and 20 to 22.
"""

import math

import pytest

from fedpace import simulate
from fedpace.core.commands import Aggregate, CancelTimer, Note, SetTimer, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Joined, Left, Rates, Timer
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.policies.fedcompass import FedCompass, FedCompassSettings

from .conftest import of

MINUTE = 60.0
MODEL = ModelProfile.even(2, 2)
SILENT = Rates(1.0, 10, 0.0, 0.0)
"""A report without transfer times: all the time that passed is compute."""


# The paper's runs


def golden(*changes, rounds=7):
    """Five clients of 10, 5, 4, 2.5 and 2 steps a minute, Q from 20 to 100, no transfer time."""
    result = simulate(
        {
            "clients": 5,
            "policy": "fedcompass",
            "task": {"kind": "timing", "samples": 1000},
            "fleet": {
                "kind": "explicit",
                "compute_s": [6.0, 12.0, 15.0, 24.0, 30.0],
                "behaviour": {"free_links": True},
                "changes": list(changes),
            },
            "train": {"batch_size": 1},
            "policies": {"fedcompass": {"q_min": 20, "q_max": 100, "latest": 1.2}},
            "stop": {"rounds": rounds},
        }
    )
    return list(result.journal)


def slower(step_s):
    """Client 3 (number 2) changes its speed in its second task."""
    return {"client": 2, "task": 1, "compute_s": step_s}


def story(messages):
    """What happened, in the journal's order: (minute, what, who or which, number)."""
    now, lines = 0.0, []
    for message in messages:
        match message:
            case Arrived(at=at, client=client, result=result):
                lines.append((round(at / MINUTE, 6), "arrives", client + 1, result.steps))
                now = at
            case Timer(at=at, name=name):
                lines.append((round(at / MINUTE, 6), "runs out", name, None))
                now = at
            case SetTimer(name=name, at=at):
                lines.append((round(now / MINUTE, 6), "waits until", name, round(at / MINUTE, 6)))
            case Aggregate(tasks=tasks):
                lines.append((round(now / MINUTE, 6), "aggregates", None, len(tasks)))
            case Train(client=client, work=work) if now > 0:
                lines.append((round(now / MINUTE, 6), "gets", client + 1, work.steps))
    return lines


def membership(messages):
    """(client, group, due minute) of every assignment."""
    found = []
    for note in of(Note, messages):
        if note.text.startswith("group "):
            group, rest = note.text.removeprefix("group ").split(": ")
            due_s = float(rest.split("expected at ")[1].removesuffix(" s"))
            found.append((note.client + 1, int(group), due_s / MINUTE))
    return found


WARM_UP = [
    (2, "arrives", 1, 20),
    (2, "aggregates", None, 1),
    (2, "waits until", "group 1", 14),
    (2, "gets", 1, 100),
    (4, "arrives", 2, 20),
    (4, "aggregates", None, 1),
    (4, "gets", 2, 40),
    (5, "arrives", 3, 20),
    (5, "aggregates", None, 1),
    (5, "gets", 3, 28),
    (8, "arrives", 4, 20),
    (8, "aggregates", None, 1),
    (8, "waits until", "group 2", 24.8),
    (8, "gets", 4, 35),
    (10, "arrives", 5, 20),
    (10, "aggregates", None, 1),
    (10, "gets", 5, 24),
]
"""Figure 1 up to minute 10, the same in all variants."""


def test_figure_1_groups_form_merge_and_settle():
    messages = golden()
    assert story(messages)[: len(WARM_UP) + 7] == [
        *WARM_UP,
        (12, "arrives", 1, 100),
        (12, "arrives", 2, 40),
        (12, "arrives", 3, 28),
        (12, "aggregates", None, 3),
        (12, "gets", 1, 100),
        (12, "gets", 2, 50),
        (12, "gets", 3, 40),
    ]
    assert membership(messages)[:8] == [
        (1, 1, 12),
        (2, 1, 12),
        (3, 1, 12),
        (4, 2, 22),
        (5, 2, 22),
        (1, 2, 22),
        (2, 2, 22),
        (3, 2, 22),
    ]
    assert (22, "aggregates", None, 5) in story(messages)


def test_weights_of_figure_1_by_hand():
    """st(d) p_i = 0.9 (d + 1)^(-1/2) / 5; first updates are 0 to 4 versions old."""
    *first, group = of(Aggregate, golden(rounds=6))
    assert [one.rule for one in (*first, group)] == ["sum"] * 6
    assert [weight for one in first for weight in one.weights] == pytest.approx(
        [0.18 / math.sqrt(versions) for versions in (1, 2, 3, 4, 5)]
    )
    # Downloaded at versions 1, 2, 3; arrived at version 5: staleness 4, 3, 2.
    assert group.weights == pytest.approx([0.18 / math.sqrt(d + 1) for d in (4, 3, 2)])


def test_figure_20_a_client_that_is_early_waits_for_its_group():
    messages = golden(slower(12.0))
    assert story(messages)[: len(WARM_UP) + 7] == [
        *WARM_UP,
        (10.6, "arrives", 3, 28),
        (12, "arrives", 1, 100),
        (12, "arrives", 2, 40),
        (12, "aggregates", None, 3),
        (12, "gets", 1, 100),
        (12, "gets", 2, 50),
        (12, "gets", 3, 50),  # by its new speed
    ]


def test_figure_21_a_group_waits_for_a_client_that_is_a_little_late():
    messages = golden(slower(18.0))  # 3.33 steps a minute
    assert story(messages)[: len(WARM_UP) + 4] == [
        *WARM_UP,
        (12, "arrives", 1, 100),
        (12, "arrives", 2, 40),
        (13.4, "arrives", 3, 28),
        (13.4, "aggregates", None, 3),
    ]


def test_figure_22_a_group_goes_on_without_a_client_that_is_very_late():
    """The paper prints 15:12 and 17 steps; by its own speeds it is 16:12 and 14, too few as well."""
    messages = golden(slower(24.0), rounds=7)
    assert story(messages)[: len(WARM_UP) + 9] == [
        *WARM_UP,
        (12, "arrives", 1, 100),
        (12, "arrives", 2, 40),
        (14, "runs out", "group 1", None),
        (14, "aggregates", None, 2),
        (14, "gets", 1, 80),
        (14, "gets", 2, 40),
        (16.2, "arrives", 3, 28),
        (16.2, "waits until", "group 3", 34.92),  # 16.2 + 1.2 * 15.6
        (16.2, "gets", 3, 39),  # floor((22 + 10 - 16.2) * 2.5): client 1 after Q_max more steps
    ]
    group_2 = next(one for one in of(Aggregate, messages) if len(one.tasks) > 3)
    late_task = [one.task for one in of(Train, messages) if one.client == 2][1]
    assert group_2.tasks[-1] == late_task, "the late update comes with the next group, whichever it is"
    # Figure 22: once all of group 2 have arrived, they are assigned to group 3.
    after = [(client, group) for client, group, _ in membership(messages)[-4:]]
    assert after[:3] == [(1, 3), (2, 3), (4, 3)]
    # Client 5 (2 steps a minute) is ours; in (31.8 - 22) minutes it would not get to Q_min.
    assert after[3] == (5, 4)


# Speeds


def test_transfer_and_compute_are_told_apart_so_that_other_step_counts_are_foretold(stage):
    on = stage(FedCompass, clients=2, q_min=10, q_max=100)
    report = Rates(1.0, 10, 12.0, 8.0)
    commands = on.arrive(30.0, 0, steps=10, rates=report)  # 20 s of transfer, 10 steps of 1 s
    assert of(Train, commands)[0].work.steps == 100
    assert of(SetTimer, commands)[0].at == pytest.approx(30 + 1.2 * (20 + 100))
    # Client 1 has 2 s a step and 20 s of transfer: due at 150, so (150 - 40 - 20) / 2 steps.
    assert of(Train, on.arrive(40.0, 1, steps=10, rates=report))[0].work.steps == 45


def test_told_together_everything_is_compute_as_in_the_paper(stage):
    on = stage(FedCompass, clients=1, q_min=10, q_max=100, tell_apart=False)
    commands = on.arrive(30.0, 0, steps=10, rates=Rates(1.0, 10, 12.0, 8.0))
    assert of(SetTimer, commands)[0].at == pytest.approx(30 + 1.2 * 100 * 3.0)


def test_transfer_times_that_cannot_be_are_not_believed(stage):
    on = stage(FedCompass, clients=1, q_min=10, q_max=100)
    commands = on.arrive(30.0, 0, steps=10, rates=Rates(1.0, 10, 500.0, 8.0))
    assert of(SetTimer, commands)[0].at == pytest.approx(30 + 1.2 * 100 * 3.0)


@pytest.mark.parametrize(("smoothing", "step_s"), [(1.0, 2.0), (0.25, 0.25 * 2.0 + 0.75 * 1.0)])
def test_a_speed_is_the_last_one_or_a_moving_mean(stage, smoothing, step_s):
    on = stage(FedCompass, clients=1, q_min=10, q_max=10, smoothing=smoothing, latest=10.0)
    on.arrive(10.0, 0, steps=10, rates=SILENT)
    commands = on.arrive(30.0, 0, steps=10, rates=SILENT)
    assert of(SetTimer, commands)[0].at == pytest.approx(30 + 10 * 10 * step_s)


def test_slack_lengthens_the_wait(stage):
    on = stage(FedCompass, clients=1, q_min=10, q_max=10, slack=0.05)
    assert of(SetTimer, on.arrive(10.0, 0, steps=10, rates=SILENT))[0].at == pytest.approx(
        10 + 1.2 * 10 * 1.05
    )


# Faults


def three_in_a_group(stage, **settings):
    """Clients 0 to 2 of 1 s a step in one group, due at 110 and waiting until 130."""
    on = stage(FedCompass, clients=3, q_min=10, q_max=100, **settings)
    for client in range(3):
        on.arrive(10.0, client, steps=10, rates=SILENT)
    return on


def test_a_client_that_vanishes_without_a_word_delays_its_group_until_the_latest_time_only(stage):
    on = three_in_a_group(stage)
    on.arrive(110.0, 0, steps=100, rates=SILENT)
    on.arrive(110.0, 1, steps=100, rates=SILENT)
    (latest,) = {one.at for one in of(SetTimer, on.memory.messages)}
    commands = on.tell(Timer(latest, "group 1"))
    assert len(of(Aggregate, commands)[0].tasks) == 2
    assert [one.client for one in of(Train, commands)] == [0, 1]


def test_with_nobody_there_the_latest_time_changes_nothing_and_members_come_late(stage):
    on = three_in_a_group(stage)
    (latest,) = {one.at for one in of(SetTimer, on.memory.messages)}
    assert on.tell(Timer(latest, "group 1")) == []
    commands = on.arrive(140.0, 0, steps=100, rates=SILENT)
    assert of(Aggregate, commands) == []
    assert [one.client for one in of(Train, commands)] == [0]


def test_a_group_goes_on_as_soon_as_the_missing_member_has_failed(stage):
    on = three_in_a_group(stage)
    task = on.open_tasks()[2].task
    on.arrive(100.0, 0, steps=100, rates=SILENT)
    on.arrive(101.0, 1, steps=100, rates=SILENT)
    on.tell(Left(105.0, 2))
    commands = on.tell(Failed(105.0, 2, task, "the client left"))
    assert len(of(Aggregate, commands)[0].tasks) == 2
    assert {one.client for one in of(Train, commands)} == {0, 1}
    assert [one.name for one in of(CancelTimer, commands)] == ["group 1"]


def test_a_group_whose_members_all_fail_is_forgotten(stage):
    on = stage(FedCompass, clients=1, q_min=10, q_max=100)
    on.arrive(10.0, 0, steps=10, rates=SILENT)
    task = on.open_tasks()[0].task
    on.tell(Left(20.0, 0))
    commands = on.tell(Failed(20.0, 0, task, "the client left"))
    assert commands == [CancelTimer("group 1")]


def test_a_client_that_has_arrived_and_left_counts_but_gets_no_work(stage):
    on = three_in_a_group(stage)
    on.arrive(100.0, 0, steps=100, rates=SILENT)
    on.tell(Left(101.0, 0))
    on.arrive(102.0, 1, steps=100, rates=SILENT)
    commands = on.arrive(103.0, 2, steps=100, rates=SILENT)
    assert len(of(Aggregate, commands)[0].tasks) == 3
    assert {one.client for one in of(Train, commands)} == {1, 2}


def test_a_client_that_comes_back_is_assigned_by_its_last_speed_and_only_once(stage):
    on = three_in_a_group(stage)
    on.arrive(100.0, 0, steps=100, rates=SILENT)
    on.tell(Left(101.0, 0))
    back = of(Train, on.tell(Joined(102.0, 0, 200)))
    assert [one.work.steps for one in back] == [100]  # group 1 is too near, so a new group
    on.arrive(103.0, 1, steps=100, rates=SILENT)
    commands = on.arrive(104.0, 2, steps=100, rates=SILENT)
    assert len(of(Aggregate, commands)[0].tasks) == 3
    assert {one.client for one in of(Train, commands)} == {1, 2}


def test_a_newcomer_warms_up_and_its_first_update_counts_at_once(stage):
    on = three_in_a_group(stage)
    assert of(Train, on.tell(Joined(50.0, 7, 600)))[0].work.steps == 10
    commands = on.arrive(55.0, 7, steps=10, rates=SILENT)
    (first,) = of(Aggregate, commands)
    assert first.weights == pytest.approx([0.9 * 600 / 1200])
    assert len(of(Train, commands)) == 1


def test_a_client_that_is_late_again_and_again_still_moves_the_model(stage):
    on = stage(FedCompass, clients=1, q_min=10, q_max=10)
    at, took, aggregations = 10.0, 10.0, 0
    on.arrive(at, 0, steps=10, rates=SILENT)
    for _ in range(10):
        took *= 2
        at += took
        commands = on.arrive(at, 0, steps=10, rates=SILENT)
        aggregations += len(of(Aggregate, commands))
    assert aggregations == 9, "each late update comes with the next, at the latest"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"q_min": 0}, "q_min is 0; set it to 1 or more"),
        ({"q_max": 0}, "q_max is 0; set it to 1 or more"),
        ({"latest": 0.9}, "latest is 0.9; set it to 1 or more"),
        ({"alpha": 0.0}, "alpha is 0.0; set it above 0"),
        ({"smoothing": 1.5}, "smoothing is 1.5; set it above 0, and to 1 at most"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        FedCompassSettings(**settings)


def test_step_counts_follow_the_run_where_they_are_not_set():
    for run_steps, settings, found in (
        (None, {}, (40, 200)),
        (100, {}, (20, 100)),
        (3, {}, (1, 3)),
        (100, {"q_min": 7}, (7, 100)),
        (100, {"q_max": 50}, (10, 50)),
    ):
        policy = FedCompass(FedCompassSettings(**settings), Context(0, 3, MODEL, 1, steps=run_steps))
        assert (policy._q_min, policy._q_max) == found
    with pytest.raises(ConfigError, match="q_max is 100, but q_min is 150; set q_max to 150 or more"):
        FedCompass(FedCompassSettings(q_min=150), Context(0, 3, MODEL, 1, steps=100))


@pytest.mark.parametrize("transfer_s", [5.0, 15.0, 18.0, 45.0])
def test_a_client_with_a_slow_link_gets_few_steps_rather_than_most(stage, transfer_s):
    """2 s a step beside a client of 0.1 s: the next two rounds of its group are 20 s away at most."""
    on = stage(FedCompass, clients=2, q_min=10, q_max=100)
    at, slow_at = 1.0, transfer_s + 20.0
    on.arrive(at, 0, steps=10, rates=SILENT)
    while at + 10.0 <= slow_at:
        at += 10.0
        on.arrive(at, 0, steps=100, rates=SILENT)
    commands = on.arrive(slow_at, 1, steps=10, rates=Rates(2.0, 10, transfer_s, 0.0))
    assert [one.work.steps for one in of(Train, commands)] == [10]


def test_an_arrival_after_the_timer_of_the_same_instant_is_late_and_goes_on(stage):
    on = three_in_a_group(stage)
    (latest,) = {one.at for one in of(SetTimer, on.memory.messages)}
    on.tell(Timer(latest, "group 1"))
    commands = on.arrive(latest, 0, steps=100, rates=SILENT)
    assert of(Aggregate, commands) == []
    assert [one.client for one in of(Train, commands)] == [0]
