import json
import math

import pytest
from msgspec.structs import replace

from fedpace.core.commands import Aggregate, Cancel, Drop, Finish, Probe, SetTimer
from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.metric import ACCURACY, LOSS, MetricInfo
from fedpace.core.events import Failed, Left, Profiled, Rates, Started, Timer
from fedpace.core.facts import Finished
from fedpace.report.summary import Summary, chosen_metric
from tests.messages import evaluated

RATES = Rates(1.0, 1, 1.0, 1.0)


def trained(event, samples):
    """An arrival that tells how many samples it was trained on."""
    return replace(event, result=replace(event.result, trained=samples))


@pytest.fixture
def synchronous(tale, train, arrived):
    """Two rounds of two clients; client 2 is in the second only, client 1 in the first only."""
    tale.join(0.0, 0, 1, 2)
    tale.on(Started(0.0), train(0, 1), train(1, 2))
    tale.fact(evaluated(0.0, 0, 0.1, 2.3))
    tale.on(arrived(4.0, 0, 1))
    tale.on(arrived(10.0, 1, 2), Aggregate((1, 2), (1.0, 1.0)), train(2, 3, 1), train(0, 4, 1))
    tale.fact(evaluated(10.0, 1, 0.5, 1.5))
    tale.on(arrived(15.0, 2, 3, 1))
    tale.on(arrived(20.0, 0, 4, 1), Aggregate((3, 4), (1.0, 1.0)), Finish("2 rounds"))
    tale.fact(evaluated(20.0, 2, 0.45, 1.6))
    tale.fact(Finished(20.0, "2 rounds"))
    return tale.summary()


def test_rounds_and_their_clients_are_counted(synchronous):
    assert synchronous.rounds == 2
    assert synchronous.empty_rounds == 0
    assert synchronous.clients_per_round == [2, 2]
    assert synchronous.round_times == [10.0, 20.0]
    assert synchronous.mean_clients == 2


def test_participation_is_rounds_aggregated_over_rounds(synchronous):
    assert synchronous.participation == {0: 1.0, 1: 0.5, 2: 0.5}
    assert synchronous.mean_participation == pytest.approx(2 / 3)


def test_idle_share_is_what_online_clients_do_not_work(synchronous):
    # Busy: client 0 from 0 to 4 and 10 to 20, client 1 from 0 to 10, client 2 from 10 to 15.
    assert synchronous.idle_share == pytest.approx(1 - 29 / 60)


def test_every_task_costs_one_download_and_every_arrival_its_upload(synchronous):
    assert (synchronous.tasks, synchronous.arrived) == (4, 4)
    assert (synchronous.down_bytes, synchronous.up_bytes) == (4000, 4000)
    assert synchronous.moved_bytes == 8000


def test_accuracy_is_followed_over_virtual_time(synchronous):
    assert synchronous.accuracy == [(0.0, 0.1), (10.0, 0.5), (20.0, 0.45)]
    assert synchronous.loss == [(0.0, 2.3), (10.0, 1.5), (20.0, 1.6)]
    assert (synchronous.best_accuracy, synchronous.final_accuracy) == (0.5, 0.45)


def test_tests_are_followed_over_rounds_and_over_the_bytes_that_were_moved(synchronous):
    assert synchronous.values_by_round["accuracy"] == [(0, 0.1), (1, 0.5), (2, 0.45)]
    assert synchronous.values_by_bytes["accuracy"] == [(2000, 0.1), (6000, 0.5), (8000, 0.45)]


def test_time_to_a_target_is_that_of_the_first_evaluation_which_reaches_it(synchronous):
    assert synchronous.time_to(0.1) == 0.0
    assert synchronous.time_to(0.11) == 10.0
    assert synchronous.time_to(0.5) == 10.0
    assert synchronous.time_to(0.51) is None


def test_the_run_is_named_and_its_end_known(synchronous, tale, labelled):
    assert (synchronous.policy, synchronous.label, synchronous.seed) == ("timelyfl", "timelyfl", 7)
    assert (synchronous.finished, synchronous.end_s) == ("2 rounds", 20.0)
    assert Summary.of(labelled({"label": "TimelyFL, k = 2"}), []).label == "TimelyFL, k = 2"


def test_a_synchronous_run_has_no_staleness_and_full_depth(synchronous):
    assert synchronous.mean_staleness == 0
    assert (synchronous.mean_depth, synchronous.mean_depth_share) == (3, 1)


def test_without_prices_there_is_no_money(synchronous):
    assert synchronous.money is None
    assert synchronous.accuracy_by_money == []
    assert synchronous.money_to(0.1) is None


@pytest.fixture
def bought(paid, train, arrived):
    """Two rounds; the second of two updates has used four of its ten samples."""
    paid.join(0.0, 0, 1)
    paid.on(Started(0.0), train(0, 1), train(1, 2))
    paid.fact(evaluated(0.0, 0, 0.1))
    paid.on(arrived(4.0, 0, 1), Aggregate((1,), (1.0,)), train(0, 3, 1))
    paid.fact(evaluated(4.0, 1, 0.5))
    paid.on(trained(arrived(5.0, 1, 2), 4))
    paid.fact(evaluated(6.0, 1, 0.5))
    paid.on(Left(7.0, 0))
    paid.on(Failed(7.0, 0, 3, "gone"), Aggregate((2,), (1.0,)), train(1, 4, 2))
    paid.fact(evaluated(7.0, 2, 0.6))
    return paid


def test_money_is_what_was_paid_and_not_given_back(bought):
    assert bought.summary().money == pytest.approx(1 + 1 + 2 + 1 - 0.6 + 2 + 1)
    assert bought.summary().money == bought.session.books.ledger.spent


def test_what_is_given_out_at_the_end_is_not_paid(bought):
    bought.session.end(7.0, "enough")
    assert bought.summary().money == pytest.approx(1 + 1 + 2 + 1 - 0.6 + 2)
    assert bought.summary().money == bought.memory.messages[-2].money


def test_the_accuracy_of_a_model_goes_with_the_money_that_was_needed_to_make_it(bought):
    found = bought.summary().accuracy_by_money
    assert [accuracy for _, accuracy in found] == [0.1, 0.5, 0.5, 0.6]
    assert [money for money, _ in found] == pytest.approx([0, 4, 4, 6.4])


def test_money_to_a_target_is_that_of_the_first_model_which_reaches_it(bought):
    assert bought.summary().money_to(0.1) == 0.0
    assert bought.summary().money_to(0.3) == pytest.approx(4)
    assert bought.summary().money_to(0.6) == pytest.approx(6.4)
    assert bought.summary().money_to(0.7) is None


def test_money_that_comes_back_was_needed_all_the_same(paid, train, arrived):
    paid.join(0.0, 0, 1)
    paid.on(Started(0.0), *(train(1, task) for task in (1, 2)), train(0, 3), Aggregate((), ()))
    paid.fact(evaluated(0.0, 1, 0.5))
    for task in (1, 2):
        paid.on(trained(arrived(1.0, 1, task), 0))
    paid.on(Timer(2.0, "late"))
    paid.on(arrived(3.0, 0, 3), Aggregate((3,), (1.0,)))
    paid.fact(evaluated(3.0, 2, 0.6))
    summary = paid.summary()
    assert [money for money, _ in summary.accuracy_by_money] == pytest.approx([5, 5])
    assert summary.money == pytest.approx(5)


@pytest.fixture
def timely(tale, train, arrived):
    """A round with probes, one of them cancelled, and then an empty round. Client 3 is never asked."""
    tale.join(0.0, 0, 1, 2, 3)
    probes = [Probe(client, client + 1, 0, batch_size=4) for client in (0, 1, 2)]
    tale.on(Started(0.0), *probes)
    tale.on(Profiled(1.0, 0, 1, RATES))
    cancel = Cancel(2, 3, "too slow to probe")
    tale.on(Profiled(2.0, 1, 2, RATES), train(0, 1), train(1, 2), cancel, SetTimer("round", 8.0))
    tale.on(arrived(5.0, 0, 1))
    tale.on(Profiled(5.5, 2, 3, RATES))
    tale.on(arrived(6.0, 1, 2, depth=1))
    tale.on(Timer(8.0, "round"), Aggregate((1, 2), (1.0, 1.0)), SetTimer("round", 10.0))
    tale.on(Timer(10.0, "round"), Aggregate((), ()), Finish("time"))
    return tale.summary()


def test_a_train_for_a_probed_task_is_no_second_task_and_no_second_download(timely):
    assert timely.tasks == 3
    assert timely.down_bytes == 3000


def test_a_partial_update_uploads_and_counts_only_its_layers(timely):
    assert timely.up_bytes == 1000 + 100
    assert timely.mean_depth == 2
    assert timely.mean_depth_share == pytest.approx(2 / 3)


def test_an_empty_round_is_a_round(timely):
    assert (timely.rounds, timely.empty_rounds) == (2, 1)
    assert timely.clients_per_round == [2, 0]
    assert timely.participation == {0: 0.5, 1: 0.5, 2: 0.0, 3: 0.0}


def test_a_task_keeps_its_client_busy_from_probe_to_cancel(timely):
    assert timely.cancelled == {"too slow to probe": 1}
    assert timely.idle_share == pytest.approx(1 - (5 + 6 + 2) / 40)


def test_a_finish_command_gives_the_reason_when_the_fact_is_missing(timely):
    assert (timely.finished, timely.end_s) == ("time", 10.0)


@pytest.fixture
def buffered(tale, train, arrived):
    """Buffers of two: client 0 fills the first alone; client 1 is two versions late."""
    tale.join(0.0, 0, 1)
    tale.on(Started(0.0), train(0, 1), train(1, 2))
    tale.on(arrived(1.0, 0, 1), train(0, 3))
    tale.on(arrived(2.0, 0, 3), Aggregate((1, 3), (1.0, 1.0), "sum"), train(0, 4, 1))
    tale.on(arrived(3.0, 0, 4, 1), train(0, 5, 1))
    tale.on(arrived(4.0, 0, 5, 1), Aggregate((4, 5), (1.0, 1.0), "sum"), train(0, 6, 2))
    tale.on(arrived(5.0, 1, 2))
    tale.on(arrived(6.0, 0, 6, 2), Aggregate((2, 6), (0.5, 1.0), "sum"), train(1, 7, 3))
    tale.on(arrived(7.0, 1, 7, 3), Drop(7, "not needed"), Finish("done"))
    return tale.summary()


def test_a_client_that_is_twice_in_one_round_takes_part_in_it_once(buffered):
    assert buffered.clients_per_round == [2, 2, 2]
    assert buffered.participation == {0: 1.0, 1: pytest.approx(1 / 3)}


def test_staleness_counts_from_the_version_that_was_downloaded(buffered):
    assert buffered.mean_staleness == pytest.approx(2 / 6)
    assert buffered.staleness == {0: 5, 2: 1}


def test_a_dropped_update_has_arrived_but_takes_part_in_nothing(buffered):
    assert (buffered.dropped, buffered.arrived, buffered.tasks) == (1, 7, 7)


def test_only_presence_counts_for_a_client_that_leaves_and_comes_back(tale, train, arrived):
    tale.join(0.0, 0, 1)
    tale.on(Started(0.0), train(0, 1))
    tale.on(Failed(10.0, 0, 1, "left"))
    tale.on(Left(10.0, 0))
    tale.join(30.0, 0)
    tale.on(Left(35.0, 1), train(0, 2))
    tale.on(arrived(38.0, 0, 2), Aggregate((2,), (1.0,)), Finish("done"))
    tale.fact(Finished(40.0, "done"))
    result = tale.summary()
    assert result.idle_share == pytest.approx(1 - (10 + 3) / (10 + 10 + 35))
    assert (result.failed, result.arrived) == (1, 1)
    assert result.participation == {0: 1.0, 1: 0.0}


def test_a_client_that_comes_back_keeps_the_rounds_it_took_part_in(tale, train, arrived):
    tale.join(0.0, 0, 1)
    tale.on(Started(0.0), train(0, 1))
    tale.on(arrived(1.0, 0, 1), Aggregate((1,), (1.0,)))
    tale.on(Left(2.0, 0))
    tale.join(3.0, 0)
    assert tale.summary().participation == {0: 1.0, 1: 0.0}


def test_a_task_that_is_open_at_the_end_is_busy_until_then(tale, train):
    tale.join(0.0, 0, 1)
    tale.on(Started(2.0), train(0, 1), Finish("done"))
    tale.fact(Finished(10.0, "done"))
    result = tale.summary()
    assert result.idle_share == pytest.approx(1 - 8 / 20)
    assert (result.tasks, result.arrived, result.failed, result.cancelled) == (1, 0, 0, {})


def test_two_tasks_at_once_make_a_client_busy_once(tale, train, arrived):
    tale.join(0.0, 0)
    tale.on(Started(0.0), train(0, 1), train(0, 2))
    tale.on(arrived(4.0, 0, 1))
    tale.on(arrived(6.0, 0, 2))
    tale.fact(Finished(8.0, "done"))
    assert tale.summary().idle_share == pytest.approx(0.25)


def test_other_model_slots_make_no_rounds_but_their_own_staleness(tale, train, arrived):
    tale.join(0.0, 0, 1)
    tale.on(Started(0.0), train(0, 1, slot="slow"), train(1, 2, slot="slow"))
    tale.on(arrived(1.0, 0, 1), Aggregate((1,), (1.0,), slot="slow"))
    tale.fact(evaluated(1.0, 1, 0.9, 0.1, slot="slow"))
    tale.on(arrived(2.0, 1, 2), Aggregate((2,), (1.0,)))
    result = tale.summary()
    assert result.rounds == 1
    assert result.participation == {0: 0.0, 1: 1.0}
    assert result.mean_staleness == pytest.approx(0.5)
    assert result.accuracy == []


def test_a_run_that_breaks_off_has_no_reason_and_ends_with_its_last_time(tale):
    tale.join(3.0, 0)
    tale.fact(evaluated(5.0, 0, 0.1, 2.3))
    result = tale.summary()
    assert (result.finished, result.end_s, result.idle_share) == (None, 5.0, 1.0)


def test_a_run_in_which_nothing_happened_has_no_means(header):
    result = Summary.of(header, [])
    assert result.idle_share is None
    assert result.mean_staleness is None
    assert result.mean_depth is None
    assert result.best_accuracy is None
    assert result.final_accuracy is None
    assert result.mean_participation is None
    assert result.left_out is None
    assert (result.updates_an_hour, result.samples_an_hour) == (None, None)
    assert result.time_to(0.1) is None


def test_a_run_without_rounds_has_no_participation(tale, train, arrived):
    tale.join(0.0, 0, 1)
    tale.on(Started(0.0), train(0, 1))
    tale.on(arrived(30.0, 0, 1))
    result = tale.summary()
    assert result.participation == {}
    assert result.mean_participation is None
    assert result.to_dict()["mean_participation"] is None
    assert result.updates == {}
    assert result.updates_an_hour == 0


def test_updates_and_samples_an_hour_count_what_was_used_of_every_client(tale, train, arrived):
    tale.join(0.0, 0, 1)
    tale.on(Started(0.0), train(0, 1), train(1, 2))
    tale.on(arrived(10.0, 0, 1), Aggregate((1,), (1.0,)), train(0, 3, 1))
    tale.on(arrived(20.0, 1, 2), Drop(2, "old"))
    tale.on(arrived(36.0, 0, 3, 1), Aggregate((3,), (1.0,)))
    result = tale.summary()
    assert (result.joined, result.updates) == (2, {0: 2})
    assert result.samples == {0: 8}  # of four samples each
    assert result.updates_an_hour == pytest.approx(100)  # two in 36 s, of two clients
    assert result.samples_an_hour == pytest.approx(400)
    assert result.to_dict()["updates"] == {"0": 2}
    assert result.left_out == result.to_dict()["left_out"] == 0.5  # all of the other one's was dropped


def test_a_summary_becomes_json(synchronous, summary):
    record = json.loads(json.dumps(synchronous.to_dict(), allow_nan=False))
    assert record["participation"] == {"0": 1.0, "1": 0.5, "2": 0.5}
    assert record["accuracy"][1] == [10.0, 0.5]
    assert record["mean_participation"] == pytest.approx(2 / 3)
    assert (record["money"], record["accuracy_by_money"]) == (None, [])
    bought = summary(money=7.5, accuracy_by_money=[(0.0, 0.1), (3.5, math.nan)]).to_dict()
    assert (bought["money"], bought["accuracy_by_money"]) == (7.5, [[0.0, 0.1], [3.5, None]])
    diverged = summary(accuracy=[(1.0, 0.1)], loss=[(1.0, math.nan)])
    assert json.loads(json.dumps(diverged.to_dict(), allow_nan=False))["loss"] == [[1.0, None]]


@pytest.mark.parametrize(("run", "clock"), [({}, "virtual"), ({"clock": "real"}, "real")])
def test_a_summary_knows_whose_clock_its_seconds_are_of(labelled, run, clock):
    assert Summary.of(labelled(run), []).clock == clock


R2 = MetricInfo("r2")


def test_best_and_targets_of_a_metric_go_by_its_direction(summary):
    falling = [(0.0, 4.0), (5.0, 1.5), (9.0, 2.0)]
    rising = [(0.0, -3.0), (5.0, 0.5), (9.0, 0.25)]
    run = summary(
        metrics=(LOSS, R2),
        values={"loss": falling, "r2": rising},
        money=1.0,
        values_by_money={"loss": [(0.0, 4.0), (1.0, 1.5)]},
    )
    assert (run.main, run.metric(), run.best(), run.final()) == (LOSS, falling, 1.5, 2.0)
    assert (run.best("r2"), run.final("r2")) == (0.5, 0.25)
    assert (run.time_to(2.0), run.time_to(1.0), run.time_to(0.4, "r2")) == (5.0, None, 5.0)
    assert run.money_to(2.0) == 1.0
    assert (run.accuracy, run.best_accuracy) == ([], None)
    with pytest.raises(ConfigError, match="there is no metric 'r3'"):
        run.metric("r3")
    record = json.loads(json.dumps(run.to_dict(), allow_nan=False))
    assert record["best"] == {"loss": 1.5, "r2": 0.5}
    assert record["values"]["r2"][0] == [0.0, -3.0]
    assert record["metrics"][0] == {"name": "loss", "higher_is_better": False, "share": False}


def test_a_report_is_about_the_main_metric_of_its_runs_or_a_named_one(summary):
    tested = {"a": [summary(metrics=(R2, LOSS), values={"r2": [(0.0, 1.0)], "loss": [(0.0, 2.0)]})]}
    assert chosen_metric(tested) == R2
    assert chosen_metric(tested, "loss") == LOSS
    assert chosen_metric({"a": [summary()]}) is None
    with pytest.raises(ConfigError, match="there is no metric 'accuracy'"):
        chosen_metric(tested, "accuracy")
    assert chosen_metric({"a": [summary(accuracy=[(0.0, 0.5)])]}) == ACCURACY


def test_a_run_without_any_update_says_why_it_ended(tale, train):
    tale.join(0.0, 0, 1)
    tale.on(Started(0.0), train(0, 1))
    tale.fact(Finished(9.0, "the time is over; nothing happened: no update was used"))
    assert tale.summary().nothing == "none of 1 tasks came back with an update (the time is over)"
