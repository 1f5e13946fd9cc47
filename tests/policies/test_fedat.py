import pytest

from fedpace.core.commands import Aggregate, Blend, Cancel, Probe, SetTimer, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined, Left, Rates, Timer
from fedpace.policies.fedat import WARM_UP, FedAT, FedATSettings

from .conftest import of


def rates(task_s):
    """A client whose task of one epoch of 10 batches takes so many seconds."""
    return Rates(task_s / 10, 10, 0.0, 0.0)


def tiered(stage, seconds=(1.0, 1.5, 4.0, 20.0), **settings):
    """Clients whose tasks take so long, after the first tiers were made."""
    on = stage(FedAT, clients=len(seconds), **settings)
    for client, task_s in enumerate(seconds):
        commands = on.profile(0.1, client, rates(task_s))
    return on, commands


def test_everybody_is_probed_and_goes_on_in_the_probed_task_when_tiers_are_known(stage):
    on, commands = tiered(stage)
    assert [one.client for one in of(Probe, on.first)] == [0, 1, 2, 3]
    assert not any(one.go_on for one in of(Probe, on.first))
    assert [(one.client, one.task) for one in of(Train, commands)] == [(0, 1), (1, 2), (2, 3), (3, 4)]


def test_a_tier_waits_for_its_own_clients_only_and_becomes_their_average(stage):
    on, _ = tiered(stage, samples=(100, 300, 50, 50))
    assert on.arrive(1.0, 0, rates=rates(1.0)) == []
    step, blend, *work = on.arrive(1.5, 1, rates=rates(1.5))
    assert step == Aggregate((1, 2), (0.25, 0.75), rule="mix", slot="tier-1")
    assert blend == Blend(("tier-1",), (1.0,))
    assert [(one.client, one.version) for one in work] == [(0, 1), (1, 1)]


def test_a_tier_weighs_what_its_mirror_image_has_had_in_rounds(stage):
    """After 3, 1 and 1 rounds tiers 1, 2 and 3 weigh 1, 1 and 3; before, those without count not."""
    on, _ = tiered(stage, seconds=(1.0, 4.0, 20.0))
    blends = []
    for at, client, task_s in ((1, 0, 1), (2, 0, 1), (4, 1, 4), (5, 0, 1), (20, 2, 20)):
        blends += of(Blend, on.arrive(float(at), client, rates=rates(task_s)))
    assert blends == [
        Blend(("tier-1",), (1.0,)),
        Blend(("tier-1",), (2.0,)),
        Blend(("tier-1", "tier-2"), (1.0, 2.0)),
        Blend(("tier-1", "tier-2"), (1.0, 3.0)),
        Blend(("tier-1", "tier-2", "tier-3"), (1.0, 1.0, 3.0)),
    ]


def test_a_client_that_slows_down_changes_its_tier_after_the_round(stage):
    on, _ = tiered(stage)
    on.arrive(1.0, 0, rates=rates(1.0))
    commands = on.arrive(5.0, 1, rates=rates(5.0))  # now in the tier of client 2, which is at work
    assert [one.client for one in of(Train, commands)] == [0]
    commands = on.arrive(6.0, 2, rates=rates(4.0))
    assert {one.client for one in of(Train, commands)} == {1, 2}


def test_the_model_of_a_tier_that_was_gone_does_not_count_when_it_comes_back(stage):
    on, _ = tiered(stage, seconds=(1.0, 4.0))
    on.arrive(1.0, 0, rates=rates(1.0))
    on.arrive(4.0, 1, rates=rates(4.0))
    on.arrive(5.0, 0, rates=rates(3.0))  # one tier is left, in which client 1 is at work as tier 2
    blend = of(Blend, on.arrive(8.0, 0, rates=rates(1.0)))[0]
    assert blend.sources == ("tier-1",)


def test_when_the_number_of_tiers_changes_all_of_them_count_from_one_round(stage):
    on, _ = tiered(stage, seconds=(1.0, 4.0))

    def blend(at, client, task_s):
        return of(Blend, on.arrive(float(at), client, rates=rates(task_s)))

    for at in (1, 2, 3):
        blend(at, 0, 1)
    assert blend(4, 1, 4) == [Blend(("tier-1", "tier-2"), (1.0, 3.0))]
    blend(5, 0, 3)  # one tier is left
    blend(8, 1, 4)  # of the tier that is gone
    assert blend(9, 0, 3) == [Blend(("tier-1",), (2.0,))]
    blend(12, 0, 1)
    assert blend(13, 1, 4) == [Blend(("tier-1",), (3.0,))]  # then there are two again
    assert blend(14, 0, 1) == [Blend(("tier-1",), (2.0,))]
    assert blend(17, 1, 4) == [Blend(("tier-1", "tier-2"), (1.0, 2.0))]
    assert blend(21, 1, 4) == [Blend(("tier-1", "tier-2"), (2.0, 2.0))]


def test_without_retiering_the_first_tiers_stay_and_newcomers_still_get_one(stage):
    on, _ = tiered(stage, seconds=(1.0, 1.5, 4.0), retier=False)
    on.arrive(1.0, 0, rates=rates(1.0))
    commands = on.arrive(5.0, 1, rates=rates(5.0))  # by its speed it is in the tier of client 2 now
    assert [one.client for one in of(Train, commands)] == [0, 1]
    on.tell(Joined(5.1, 9, 100))
    on.profile(5.2, 9, rates(4.5))
    commands = on.arrive(6.0, 2, rates=rates(4.0))
    assert [one.client for one in of(Train, commands)] == [2, 9]


def test_without_retiering_newcomers_do_not_move_the_bounds_of_tiers(stage):
    on, _ = tiered(stage, seconds=(1.0, 4.0), retier=False)
    for client, task_s in ((8, 0.2), (9, 1.0), (7, 3.9), (6, 50.0)):
        on.tell(Joined(0.5, client, 100))
        on.profile(0.5, client, rates(task_s))
    for client, task_s in ((0, 1.0), (1, 4.0)):
        commands = on.arrive(4.0, client, rates=rates(task_s))
        tier = [0, 7, 8, 9] if client == 0 else [1, 6]
        assert [one.client for one in of(Train, commands)] == tier


def test_a_newcomer_is_probed_and_waits_for_the_next_round_of_its_tier(stage):
    on, _ = tiered(stage)
    (probe,) = on.tell(Joined(0.5, 9, 100))
    assert isinstance(probe, Probe)
    commands = on.profile(0.6, 9, rates(1.2))
    assert commands == [Cancel(9, probe.task, "waits for the next round of its tier")]
    on.arrive(1.0, 0, rates=rates(1.0))
    commands = on.arrive(1.5, 1, rates=rates(1.5))
    assert {one.client for one in of(Train, commands)} == {0, 1, 9}


def test_a_newcomer_of_a_new_speed_starts_a_tier_of_its_own(stage):
    on, _ = tiered(stage, seconds=(1.0, 4.0))
    on.tell(Joined(0.5, 9, 100))
    assert [one.client for one in of(Train, on.profile(0.6, 9, rates(90.0)))] == [9]


def test_who_does_not_answer_its_probe_holds_up_the_first_tiers_for_a_while_only(stage):
    on = stage(FedAT, clients=3, patience=5.0)
    (timer,) = of(SetTimer, on.profile(2.0, 0, rates(1.0)))
    assert timer == SetTimer(WARM_UP, 12.0)
    on.profile(3.0, 1, rates(1.0))
    assert [one.client for one in of(Train, on.tell(Timer(12.0, WARM_UP)))] == [0, 1]
    late = on.open_tasks()[2].task
    assert on.profile(13.0, 2, rates(1.0)) == [Cancel(2, late, "waits for the next round of its tier")]


def test_a_client_whose_probe_fails_is_probed_again_and_waited_for(stage):
    on = stage(FedAT, clients=2)
    on.profile(0.1, 0, rates(1.0))
    (again,) = on.tell(Failed(0.2, 1, on.open_tasks()[1].task, "crashed"))
    assert isinstance(again, Probe)
    assert again.client == 1
    commands = on.profile(0.3, 1, rates(1.0))
    assert [(one.client, one.task) for one in of(Train, commands)] == [(0, 1), (1, again.task)]


def test_a_newcomer_whose_probe_fails_is_probed_again_and_gets_a_tier(stage):
    on, _ = tiered(stage)
    (probe,) = on.tell(Joined(0.5, 9, 100))
    (again,) = on.tell(Failed(0.6, 9, probe.task, "crashed"))
    assert isinstance(again, Probe)
    on.profile(0.7, 9, rates(4.0))
    assert {one.client for one in of(Train, on.arrive(4.0, 2, rates=rates(4.0)))} == {2, 9}


def test_a_tier_goes_on_without_a_client_that_failed_or_left(stage):
    on, _ = tiered(stage)
    on.arrive(1.0, 0, rates=rates(1.0))
    task = on.open_tasks()[1].task
    on.tell(Left(1.2, 1))
    commands = on.tell(Failed(1.2, 1, task, "the client left"))
    assert len(of(Aggregate, commands)[0].tasks) == 1
    assert [one.client for one in of(Train, commands)] == [0]


def test_only_n_clients_of_a_tier_train_in_a_round(stage):
    _, commands = tiered(stage, seconds=(1.0, 1.1, 1.2, 1.3), n=2)
    chosen = {one.client for one in of(Train, commands)}
    assert len(chosen) == 2
    assert {one.client for one in of(Cancel, commands)} == {0, 1, 2, 3} - chosen


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ratio": 1.0}, "ratio is 1.0; set it above 1"),
        ({"n": 0}, "n is 0"),
        ({"patience": 0.5}, "patience is 0.5; set it to 1 or more"),
        ({"epochs": 0}, "epochs is 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        FedATSettings(**settings)
