"""Members that lie, fail or hang, in runs that are real but for the network and the clock."""

from collections import Counter
from itertools import pairwise

import pytest
import torch

from fedpace.core.commands import Aggregate, Train
from fedpace.core.events import Arrived, Failed, Joined, Left
from fedpace.core.facts import Ignored, RolledBack
from fedpace.core.journal import JOURNAL, replay
from fedpace.remote.reports import RunStopped
from tests.net.federation import check_once, policy_of
from tests.remote.driven import DrivenRun, Stalled, liars

HONEST = [""] * 10
LIAR = len(HONEST)
"""The number of the first client that is no honest one."""
QUICKLY = {"deadline_floor_s": 2.0, "first_deadline_s": 4.0}
OFF = {"norm_factor": 0.0, "loss_factor": 0.0, "influence": 0.0, "deadline_factor": 0.0}


def by_client(run, kind):
    return Counter(one.client for one in run.of(kind))


def checked(run):
    """See that its journal is in order."""
    replay(run.out / JOURNAL, policy_of(run.serving._assembly.header))
    check_once(run.messages)
    return run


@pytest.mark.parametrize(
    ("policy", "rounds"),
    [
        ("sync", 12),
        ("fedbuff", 30),
        pytest.param("timelyfl", 40, marks=pytest.mark.nightly),
        pytest.param("fedcompass", 150, marks=pytest.mark.nightly),
    ],
)
def test_a_liar_of_each_kind_costs_less_than_a_point_of_accuracy(tmp_path, policy, rounds):
    honest = 20
    kinds = [""] * honest
    calm = DrivenRun(tmp_path / "calm", policy, kinds, rounds).run()
    run = checked(DrivenRun(tmp_path / "run", policy, [*kinds, *liars.LIARS], rounds, QUICKLY).run())
    assert calm.accuracy > 0.6
    assert run.accuracy > calm.accuracy - 0.01
    arrived = by_client(run, Arrived)
    caught = [honest + liars.LIARS.index(kind) for kind in ("norm", "nan", "failer", "hung")]
    assert not any(arrived[client] for client in caught)
    assert not set(run.expelled) & set(range(honest))  # whom nobody may blame
    assert len(run.of(Failed)) < 30


@pytest.mark.parametrize("policy", ["sync", "fedbuff"])
def test_without_any_defence_the_same_liars_ruin_a_run_or_stall_it(tmp_path, policy):
    """So that the test above is about something."""
    run = DrivenRun(tmp_path, policy, [*HONEST, "norm", "hung"], 10, OFF)
    try:
        ruined = run.run().accuracy < 0.3
    except Stalled:
        ruined = True
    assert ruined


def test_one_huge_update_is_refused_and_counted_against_who_sent_it(tmp_path):
    run = checked(DrivenRun(tmp_path, "fedbuff", [*HONEST, "norm"], 20).run())
    reasons = [one.reason for one in run.of(Failed) if one.client == LIAR]
    assert any(reason.startswith("refused: its numbers: update of task") for reason in reasons)
    assert LIAR in run.expelled
    assert run.world.clients[LIAR].refused >= 3
    assert not any(record.refused for record in run.world.clients[:LIAR])


def test_a_model_that_went_bad_is_rolled_back_and_nobody_is_blamed(tmp_path):
    """Its first update is not too large for a guess, and ruins the model before others are known."""
    kinds = ["heavy", "", "", ""]
    run = DrivenRun(tmp_path, "fedasync", kinds, 40, {"loss_factor": 2.0}, alpha=0.9)
    checked(run.run())
    assert run.of(RolledBack)
    assert run.accuracy > 0.5
    assert not set(run.expelled) - {0}


def test_a_run_with_a_rollback_goes_on_with_the_models_that_it_had(tmp_path):
    def start(resume=False):
        kinds = ["heavy", "", "", ""]
        serve = {"loss_factor": 2.0}
        return DrivenRun(tmp_path, "fedasync", kinds, 10**6, serve, resume=resume, alpha=0.9)

    run = start().begin()
    run.at(5.0, lambda: run.world.stop("enough"))
    with pytest.raises(RunStopped):
        run.serving.carry_on()
    assert run.of(RolledBack)
    before = run.serving.models.weights()
    run.close()
    again = start(resume=True)  # from nothing but the journal and updates
    again.serving.begin()
    assert torch.equal(again.serving.models.weights().params, before.params)
    again.serving.save()
    again.close()
    third = start(resume=True)  # and from a snapshot
    third.serving.begin()
    assert torch.equal(third.serving.models.weights().params, before.params)
    good = third.serving.models._good, again.serving.models._good
    assert good[0].version == good[1].version
    assert torch.equal(good[0].states["global"]["params"], good[1].states["global"]["params"])
    third.close()


def test_a_member_that_answers_at_once_has_its_share_and_no_more(tmp_path):
    run = checked(DrivenRun(tmp_path, "fedbuff", [*HONEST, "sprinter"], 30).run())
    arrived = by_client(run, Arrived)
    assert 3 <= arrived[LIAR] <= (3.5 / len(HONEST)) * sum(arrived.values())
    assert run.accuracy > 0.6


def test_a_share_can_be_set_and_a_member_alone_is_not_starved(tmp_path):
    free = DrivenRun(
        tmp_path / "free", "fedbuff", ["", "", "", "sprinter"], 30, {"influence": 0.0}, k=2
    )
    arrived = by_client(free.run(), Arrived)
    assert arrived[3] > 0.5 * sum(arrived.values())
    kinds = ["sprinter", "hung", "hung", "hung"]
    lone = DrivenRun(tmp_path / "lone", "fedbuff", kinds, 10, {"first_deadline_s": 1e6}, k=1)
    assert by_client(lone.run(), Arrived)[0] == 10  # one a minute in the end


def test_speeds_that_do_not_agree_with_what_is_seen_are_replaced_and_the_member_is_flagged(tmp_path):
    run = DrivenRun(tmp_path, "sync", ["", "", ""], 4)
    run.machines[0].said_batch_s = 5.0  # slower than it is
    run.machines[1].batch_s, run.machines[1].said_batch_s = 2.0, 0.001  # slower than it says
    run.run()
    for client in (0, 1):
        rates = [one.rates for one in run.of(Arrived) if one.client == client]
        true_s = run.machines[client].batch_s
        assert all(
            one.batch_s * 10 == pytest.approx(10 * true_s, rel=0.5, abs=0.2) for one in rates[:1]
        )
        assert run.world.clients[client].flagged == 4
    assert not run.world.clients[2].flagged


def test_who_fails_every_task_at_once_gets_few_and_is_shut_out(tmp_path):
    run = checked(DrivenRun(tmp_path, "fedbuff", ["", "", "", "failer"], 120, k=2).run())
    tasks = Counter(one.client for one in run.of(Train))
    assert tasks[3] == 5
    assert run.expelled == [3]
    pauses = [one.at for one in run.of(Joined) if one.client == 3]
    assert [later - one for one, later in pairwise(pauses[1:])] == [
        pytest.approx(2.0, abs=0.1),
        pytest.approx(4.0, abs=0.1),
    ]
    assert len(run.of(Left)) <= 5


@pytest.mark.parametrize(
    ("policy", "own"),
    # Uniform waits for its clients as DYNAMITE does, and asks for no estimates.
    [("sync", {}), ("timelyfl", {"k": 3}), ("fedbuff", {"k": 3}), ("uniform", {})],
)
def test_a_client_that_hangs_and_says_that_it_lives_fails_its_task_and_the_run_goes_on(
    tmp_path, caplog, policy, own
):
    run = DrivenRun(tmp_path, policy, ["", "", ""], 12, {"deadline_floor_s": 2.0}, **own)
    run.machines[2].stuck_from = 8
    checked(run.run())
    overdue = [one for one in run.of(Failed) if one.reason.startswith("overdue: ")]
    assert {one.client for one in overdue} == {2}
    assert "of client-2 is overdue after 2 s" in caplog.text
    assert len(run.of(Aggregate)) == 12


def test_what_comes_after_the_deadline_is_ignored_and_no_offence(tmp_path):
    run = DrivenRun(tmp_path, "sync", ["", ""], 10, {"deadline_floor_s": 2.0})
    run.machines[1].stuck_from = 4
    late = []

    def hear(client, task, reason):
        late.append(task)
        if len(late) == 1:  # it has been at it all the time, and does not hear this
            result = liars_result()
            event = arrived_late(client, task, result, run.rates(client))
            run.at(0.01, lambda: run.world.put(event))
            run.machines[1].stuck_from = 1e9

    run.send_refusal = hear
    checked(run.run())
    assert late
    ignored = [one for one in run.of(Ignored) if one.client == 1]
    assert [one.task for one in ignored] == late[:1]
    assert run.world.clients[1].refused == 0
    assert by_client(run, Arrived)[1] > 3


def liars_result():
    from fedpace.core.events import TaskResult

    return TaskResult(2, 10, 0, liars.SAMPLES, 200)


def arrived_late(client, task, result, rates):
    return Arrived(at=0.0, client=client, task=task, version=0, result=result, up_bytes=10, rates=rates)
