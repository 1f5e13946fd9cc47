import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedpace.core.commands import Aggregate, Cancel, Note, Probe, SetTimer, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined, Left, Rates, Timer
from fedpace.core.model import LayerCost, ModelProfile
from fedpace.policies.timelyfl import DECIDE, END, TimelyFL, TimelyFLSettings
from tests.policies.test_timelyfl_schedule import A, B, C, D, durations

from .conftest import Stage, of


def rates(compute_s, up_s, down_s=0.0, batches=10, latency_s=0.0):
    return Rates(compute_s / batches, batches, down_s, up_s, latency_s)


# The policy: one round with the worked example on the paper's clock


def paper_round(stage, **changes):
    on = stage(TimelyFL, k=2, clock="paper", alpha="parameters", **changes)
    commands = []
    for client, (compute, comm) in enumerate((A, B, C, D)):
        commands = on.profile(1.0, client, rates(compute, comm))
    return on, commands


def test_everybody_is_probed_first_and_nothing_is_decided_before_the_last_answer(stage):
    on = stage(TimelyFL, k=2, clock="paper", alpha="parameters")
    assert sorted(probe.client for probe in on.first) == [0, 1, 2, 3]
    for client, (compute, comm) in enumerate((A, B, C)):
        assert of(Train, on.profile(1.0, client, rates(compute, comm))) == []
    assert len(of(Train, on.profile(1.0, 3, rates(*D)))) == 4


def test_the_policy_gives_the_worked_examples_workloads(stage):
    _, commands = paper_round(stage)
    works = {command.client: command.work for command in of(Train, commands)}
    assert [works[c].epochs for c in range(4)] == [1, 2, 1, 1]
    assert [works[c].depth for c in range(4)] == [None, None, 3, 6]
    assert [works[c].stop_at for c in range(4)] == pytest.approx([11, 12, 10, 4])  # t_rpt from time 1
    assert [timer.name for timer in of(SetTimer, commands)] == [END]
    assert of(SetTimer, commands)[0].at == pytest.approx(13)


def test_at_the_end_of_the_interval_what_is_there_is_averaged_and_the_rest_cancelled(stage):
    on, commands = paper_round(stage)
    on.arrive(11.0, 0, samples=200)
    on.arrive(12.0, 2, samples=150, depth=3)
    ending = on.tell(Timer(of(SetTimer, commands)[0].at, END))
    (mean,) = of(Aggregate, ending)
    assert (mean.rule, mean.missing) == ("mean", "skip")
    assert mean.weights == (200.0, 150.0)
    assert sorted(cancel.client for cancel in of(Cancel, ending)) == [1, 3]
    assert {cancel.reason for cancel in of(Cancel, ending)} == {"late"}
    assert all(probe.version == 1 for probe in of(Probe, ending))
    assert len(of(Probe, ending)) == 4


def test_an_empty_round_keeps_the_model_and_is_noted(stage):
    on, commands = paper_round(stage)
    ending = on.tell(Timer(of(SetTimer, commands)[0].at, END))
    assert of(Aggregate, ending) == [Aggregate((), ())]
    assert [note.text for note in of(Note, ending)] == ["empty round: nobody arrived"]


def test_late_drop_sets_no_stop_time(stage):
    _, commands = paper_round(stage, late="drop")
    assert {command.work.stop_at for command in of(Train, commands)} == {None}


def test_max_epochs_bounds_the_fast(stage):
    _, commands = paper_round(stage, max_epochs=1)
    assert {command.work.epochs for command in of(Train, commands)} == {1}


def test_deployed_the_interval_is_stretched_by_the_slack(stage):
    _, commands = paper_round(stage, slack=0.05)
    assert of(SetTimer, commands)[0].at == pytest.approx(1 + 12 * 1.05)


def test_the_last_layer_is_trained_even_if_the_fraction_is_smaller(stage):
    heavy_head = ModelProfile((LayerCost("a", 100, 1.0, 1.0), LayerCost("head", 900, 1.0, 1.0)))
    _, commands = paper_round(stage, model=heavy_head)
    assert {c.client: c.work.depth for c in of(Train, commands)} == {0: None, 1: None, 2: 1, 3: 1}


def test_a_frozen_workload_stays_what_it_was_in_the_first_round(stage):
    def depths(workload):
        on, commands = paper_round(stage, workload=workload)
        on.tell(Timer(of(SetTimer, commands)[0].at, END))
        for client, (compute, comm) in enumerate((A, B, (6.0, 2.0), D)):  # C is fast now
            commands = on.profile(14.0, client, rates(compute, comm))
        return {command.client: command.work.depth for command in of(Train, commands)}

    assert depths("frozen")[2] == 3
    assert depths("adaptive")[2] is None


# The honest clock


def honest(stage, profiles, at, **changes):
    on = stage(TimelyFL, clients=len(profiles), clock="honest", **({"k": 1} | changes))
    commands = []
    for client, measured in enumerate(profiles):
        commands = on.profile(at, client, measured)
    return on, commands


def test_times_count_from_the_sending_of_the_model(stage):
    # u_tot = 1 + 10 + 1 = 12 and 1 + 20 + 1 = 22. The slow client is through its probe batch at 3 s;
    # its other 9 batches take 18 s times the share that its depth costs.
    _, commands = honest(stage, [rates(10, 1, 1), rates(20, 1, 1)], at=3.0)
    slow = of(Train, commands)[1].work
    predicted = 3 + 18 * (0.3 + 0.07 * slow.depth) + 0.1 * slow.depth
    one_more = 3 + 18 * (0.3 + 0.07 * (slow.depth + 1)) + 0.1 * (slow.depth + 1)
    assert slow.steps is None
    assert slow.epochs == 1
    assert slow.depth < 10
    assert predicted <= 12 < one_more
    assert slow.stop_at == pytest.approx(12 - 0.1 * slow.depth)


def test_a_client_that_cannot_pay_for_one_epoch_of_its_last_layer_gets_fewer_batches(stage):
    # The slow one: 10 s a batch, so 9 batches of the last layer alone take 9 * 3.7 s.
    _, commands = honest(stage, [rates(18, 1, 1), rates(100, 1, 1)], at=11.0)
    slow = of(Train, commands)[1].work
    assert (slow.epochs, slow.depth) == (None, 1)
    assert slow.steps == 1 + int((20 - 11 - 0.1) / 3.7)


def test_a_client_that_cannot_finish_the_batch_it_is_in_sends_what_it_has(stage):
    # At 13.0 it is in its second batch (11 to 21), but the interval ends at 20; its upload of 4 s
    # for the whole model leaves room for all of it.
    _, commands = honest(stage, [rates(18, 1, 1), rates(100, 4, 1)], at=13.0)
    slow = of(Train, commands)[1].work
    assert (slow.steps, slow.depth) == (1, None)


def test_a_client_whose_link_alone_takes_longer_is_let_go_and_the_journal_says_why(stage):
    _, commands = honest(stage, [rates(10, 1, 1), rates(10, 300, 1)], at=2.0)
    (cancel,) = of(Cancel, commands)
    assert cancel.client == 1
    assert "fits the interval" in cancel.reason


def test_probing_is_no_barrier_for_the_slowest(stage):
    on = stage(TimelyFL, clients=3, k=2)
    assert on.profile(2.0, 0, rates(10, 1, 1)) == []
    (timer,) = on.profile(3.0, 1, rates(20, 2, 1))
    # T_2 = 23; client 1 would have to report at 21 and client 0, whose upload is shorter, at 22.
    assert timer == SetTimer(DECIDE, 21.0)
    decided = on.tell(Timer(21.0, DECIDE))
    assert [(c.client, c.reason) for c in of(Cancel, decided)] == [(2, "no profile in time")]
    assert {c.client: (c.work.epochs, c.work.depth) for c in of(Train, decided)} == {
        0: (2, None),
        1: (1, None),
    }


def test_a_client_that_fails_while_probing_does_not_hold_up_the_round(stage):
    on = stage(TimelyFL, clients=3, k=1)
    on.profile(2.0, 0, rates(10, 1, 1))
    on.profile(2.0, 1, rates(10, 1, 1))
    decided = on.tell(Failed(3.0, 2, on.open_tasks()[2].task, "gone"))
    assert len(of(Train, decided)) == 2


def test_a_due_time_whose_clients_are_gone_is_waited_out(stage):
    on = stage(TimelyFL, clients=3, k=1)
    (timer,) = on.profile(2.0, 0, rates(10, 1, 1))
    on.tell(Failed(3.0, 0, on.open_tasks()[0].task, "gone"))
    assert on.tell(Timer(timer.at, DECIDE)) == []
    on.profile(20.0, 1, rates(30, 1, 1))
    decided = on.profile(21.0, 2, rates(30, 1, 1))
    assert [train.work.depth for train in of(Train, decided)] == [None, None]


def test_when_everybody_fails_the_round_ends_empty_and_the_next_begins(stage):
    on = stage(TimelyFL, clients=2, k=1)
    on.tell(Failed(1.0, 0, on.open_tasks()[0].task, "x"))
    commands = on.tell(Failed(2.0, 1, on.open_tasks()[1].task, "x"))
    assert of(Aggregate, commands) == [Aggregate((), ())]
    assert len(of(Probe, commands)) == 2


def test_with_nobody_online_it_waits_and_begins_when_somebody_joins(stage):
    on = stage(TimelyFL, clients=1)
    on.tell(Failed(1.0, 0, on.open_tasks()[0].task, "x"))
    left = on.open_tasks()[0].task
    on.tell(Left(3.0, 0))
    assert of(Probe, on.tell(Failed(3.0, 0, left, "the client left"))) == []
    assert len(of(Probe, on.tell(Joined(4.0, 0, 10)))) == 1


def test_history_saves_the_probe_once_speeds_are_known(stage):
    on = stage(TimelyFL, clients=2, k=1, probe="history")
    for client in range(2):
        commands = on.profile(2.0, client, rates(10, 1, 1))
    for client in range(2):
        on.arrive(11.0, client, rates=rates(20 + client, 1, 1))
    following = on.tell(Timer(of(SetTimer, commands)[0].at, END))
    assert of(Probe, following) == []
    assert sorted(train.client for train in of(Train, following)) == [0, 1]
    began = of(SetTimer, commands)[0].at
    assert of(SetTimer, following)[0].at - began == pytest.approx(22)  # the rates last measured


def test_whoever_history_says_is_too_slow_is_measured_again(stage):
    on = stage(TimelyFL, clients=2, k=1, probe="history")
    for client in range(2):
        commands = on.profile(2.0, client, rates(10, 1, 1))
    on.arrive(11.0, 0, rates=rates(10, 1, 1))
    on.arrive(11.0, 1, rates=rates(10, 100, 100))  # its line was bad, once
    second = on.tell(Timer(of(SetTimer, commands)[0].at, END))
    assert [train.client for train in of(Train, second)] == [0]
    assert of(Probe, second) == []
    on.arrive(20.0, 0, rates=rates(10, 1, 1))
    third = on.tell(Timer(of(SetTimer, second)[0].at, END))
    assert [probe.client for probe in of(Probe, third)] == [1]
    assert [train.client for train in of(Train, third)] == [0]


def test_with_history_a_newcomer_is_probed_and_fitted_into_the_running_interval(stage):
    on = stage(TimelyFL, clients=3, n=3, k=1, probe="history")
    for client in range(3):
        commands = on.profile(2.0, client, rates(10, 1, 1))
    on.arrive(11.0, 0)
    on.session.policy._rates.pop(2)
    began = of(SetTimer, commands)[0].at
    following = on.tell(Timer(began, END))
    assert [probe.client for probe in of(Probe, following)] == [2]
    assert sorted(train.client for train in of(Train, following)) == [0, 1]
    (train,) = on.profile(began + 2.0, 2, rates(10, 1, 1))
    assert isinstance(train, Train)


def test_a_probe_goes_on_by_the_honest_clock_up_to_the_most_epochs_and_waits_by_the_papers(stage):
    honest_probe = stage(TimelyFL, max_epochs=3).first[0]
    paper_probe = stage(TimelyFL, clock="paper").first[0]
    assert (honest_probe.go_on, honest_probe.max_epochs) == (True, 3)
    assert (paper_probe.go_on, paper_probe.max_epochs) == (False, None)


def test_layers_that_a_client_froze_can_be_counted_as_zero(stage):
    on, commands = paper_round(stage, missing="zero")
    on.arrive(11.0, 0)
    (mean,) = of(Aggregate, on.tell(Timer(of(SetTimer, commands)[0].at, END)))
    assert mean.missing == "zero"


def test_the_decision_leaves_time_for_its_own_message(stage):
    on = stage(TimelyFL, clients=3, k=2)
    on.profile(2.0, 0, rates(10, 1, 1))
    (timer,) = on.profile(3.0, 1, rates(20, 2, 1, latency_s=0.5))
    assert timer == SetTimer(DECIDE, 20.5)  # 23 - 2 of the upload - 0.5 of the message


def test_deployed_one_that_gives_no_profile_does_not_cost_the_others_their_layers(stage):
    """Decided at the last moment, on a real clock a bit after it, no upload of a whole model fits."""
    on = stage(TimelyFL, clients=3, k=2, slack=0.1)
    on.profile(2.0, 0, rates(10, 1, 1))
    (timer,) = on.profile(3.0, 1, rates(20, 2, 1))
    assert timer.at == pytest.approx(21.0 * 0.9)
    decided = on.tell(Timer(timer.at + 0.5, DECIDE))
    assert [(train.client, train.work.depth) for train in of(Train, decided)] == [(0, None), (1, None)]


def test_latency_is_paid_whatever_the_depth(stage):
    _, commands = honest(
        stage, [rates(10, 2, 2, latency_s=1.0), rates(40, 2, 2, latency_s=1.0)], at=7.0
    )
    slow = of(Train, commands)[1].work
    share = slow.depth / 10
    assert slow.stop_at == pytest.approx(14 - 1.0 - share * 1.0)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"n": 10, "k": 12}, "k is 12, but 10 clients are sampled; set k between 1 and 10"),
        ({"n": 0}, "n is 0"),
        ({"k": -1}, "k is -1"),
        ({"max_epochs": 0}, "max_epochs is 0"),
        ({"clock": "paper", "probe": "history"}, "has not been sent yet"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, complaint):
    with pytest.raises(ConfigError, match=complaint):
        TimelyFLSettings(**wrong)


def test_a_sample_larger_than_the_fleet_is_refused(stage):
    with pytest.raises(
        ConfigError, match="n is 5, but 4 clients are in the fleet; set n between 1 and 4"
    ):
        stage(TimelyFL, n=5)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(durations, durations, durations, st.integers(1, 40)), min_size=2, max_size=8),
    st.data(),
)
def test_whatever_is_given_out_is_predicted_to_arrive_in_time(fleet, data):
    k = data.draw(st.integers(1, len(fleet)))
    measured = [rates(c, u, d, batches=b) for c, u, d, b in fleet]
    on = Stage(TimelyFL, clients=len(fleet), k=k)
    answers = sorted((r.down_s + r.batch_s, client) for client, r in enumerate(measured))
    model = on.session.policy.context.model
    commands = []
    for at, client in answers:
        if of(SetTimer, commands) and of(SetTimer, commands)[-1].name == END:
            break
        commands = on.profile(at, client, measured[client])
        timers = [m for m in on.memory.messages if isinstance(m, SetTimer) and m.name == DECIDE]
        if timers and not of(Train, commands):
            following = [a for a, _ in answers if a > at]
            if following and following[0] > timers[-1].at:
                commands = on.tell(Timer(timers[-1].at, DECIDE))
    now = on.session.books.now
    end = of(SetTimer, commands)[-1].at
    works = of(Train, commands)
    assert len(works) >= min(k, len(works))
    for train in works:
        r, work = measured[train.client], train.work
        depth = work.depth or 10
        total = work.steps or work.epochs * r.batches
        done = min(max(int(np.ceil((now - r.down_s) / r.batch_s * (1 - 1e-9))), 1), total)
        finished = max(now, r.down_s + done * r.batch_s)
        finished += (total - done) * r.batch_s * model.compute_share[depth - 1]
        assert finished + r.up_s * model.byte_share[depth - 1] <= end * (1 + 1e-6)
