"""What ADEL-FL and SALF share: the warm-up, stops inside the backward pass, the correction."""

import numpy as np
import pytest

from fedpace.core.commands import Aggregate, Cancel, Finish, Note, SetTimer, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined, Left, Rates, Timer
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context
from fedpace.planning.deadline_bound import missed_chances_at_rates
from fedpace.policies.salf import SALF
from fedpace.policies.shared.layered import Averaging
from tests.policies.conftest import of

FIVE = ModelProfile.even(5, 5000, forward_share=0.0)


def speed(batch_s=5.0, down_s=0.5, up_s=0.5):
    return Rates(batch_s, 10, down_s, up_s)


def warmed(stage, at=6.0, rates=None, **settings):
    """A stage whose clients have all delivered their first batch; what the round then said."""
    made = stage(SALF, model=FIVE, **settings)
    for client in range(made.session.policy.context.clients):
        said = made.arrive(at, client, depth=5, steps=1, rates=(rates or [speed()] * 9)[client])
    return made, said


def test_a_warm_up_gives_everybody_one_whole_batch_and_ends_when_all_are_there(stage):
    made = stage(SALF, model=FIVE, deadline_s=30.0)
    works = [command.work for command in of(Train, made.first)]
    assert [(work.batch_size, work.steps, work.stop_at) for work in works] == [(20, 1, None)] * 4
    for client in range(3):
        assert made.arrive(6.0, client, depth=5, steps=1) == []
    said = made.arrive(7.0, 3, depth=5, steps=1)
    assert of(Aggregate, said)[0].missed is None
    assert len(of(Train, said)) == 4


def test_a_warm_up_that_takes_too_long_lets_the_late_go_and_takes_them_for_slow(stage):
    made = stage(SALF, model=FIVE, deadline_s=30.0)
    assert made.tell(Timer(30.0, "round ends")) == []  # nobody is there
    said = made.arrive(40.0, 0, depth=5, steps=1, rates=speed())
    assert [command.client for command in of(Cancel, said)] == [1, 2, 3]
    speeds = made.session.policy.speeds
    assert speeds[2].guessed
    # Not faster than 20 samples through 5 layers in the 40 s that it had.
    assert speeds[2].samples_per_s == pytest.approx(5 * 20 / 40)
    assert not speeds[0].guessed
    assert speeds[0].samples_per_s == pytest.approx(5 * 20 / 5)


def test_computing_stops_in_time_for_the_whole_model_to_be_sent(stage):
    _, said = warmed(stage, rates=[speed(up_s=0.5), speed(up_s=2.0)], clients=2, deadline_s=30.0)
    works = {command.client: command.work for command in of(Train, said)}
    assert works[0].stop_in == works[1].stop_in == "layer"
    assert works[0].stop_at == pytest.approx(6.0 + 30.0 - 0.5)
    assert works[1].stop_at == pytest.approx(6.0 + 30.0 - 2.0)
    assert works[0].stop_at < 6.0 + 30.0 - 0.5
    assert of(SetTimer, said)[0].at == 36.0


def test_slack_is_taken_from_the_computing_not_added_to_the_round(stage):
    _, said = warmed(stage, clients=2, deadline_s=30.0, slack=0.2)
    assert of(Train, said)[0].work.stop_at == pytest.approx(6.0 + 25.0 - 0.5)
    assert of(SetTimer, said)[0].at == 36.0


def test_several_local_steps_are_as_many_as_the_run_says(stage):
    _, said = warmed(stage, clients=2, deadline_s=30.0, train={"steps": 3})
    assert {command.work.steps for command in of(Train, said)} == {3}


def test_a_mean_is_corrected_by_the_chance_that_nobody_reached_the_layer(stage):
    made, _ = warmed(stage, rates=[speed(10.0), speed(20.0)], clients=2, deadline_s=10.0)
    made.arrive(9.0, 0, depth=2, steps=1, last_depth=2, rates=speed(10.0))
    said = made.tell(Timer(16.0, "round ends"))
    # P = 5 layers * 20 samples / batch_s; 9 s are for computing.
    expected = missed_chances_at_rates(np.array([10 * 9 / 20, 5 * 9 / 20]), 5)
    aggregate = of(Aggregate, said)[0]
    assert aggregate.missed == pytest.approx(expected.tolist(), rel=1e-6)
    assert aggregate.weights == (1.0,)
    assert [command.client for command in of(Cancel, said)] == [1]


def test_the_correction_is_capped_and_the_journal_says_how_often(stage):
    made, _ = warmed(stage, rates=[speed(100.0)] * 2, clients=2, deadline_s=10.0)
    made.arrive(9.0, 0, depth=1, steps=1, last_depth=1, rates=speed(100.0))
    said = made.tell(Timer(16.0, "round ends"))
    assert max(of(Aggregate, said)[0].missed) == 0.9
    assert "3 times so far" in of(Note, said)[0].text


def test_an_empty_round_changes_nothing_and_is_said(stage):
    made, _ = warmed(stage, clients=2, deadline_s=10.0)
    for client, opened in made.open_tasks().items():
        made.tell(Failed(15.0, client, opened.task, "no layer was done in time"))
    said = made.tell(Timer(16.0, "round ends"))
    assert of(Aggregate, said)[0].tasks == ()
    assert "empty round" in of(Note, said)[0].text


def test_a_newcomer_shows_its_speed_in_one_whole_batch_and_then_nothing_is_corrected(stage):
    made, _ = warmed(stage, clients=3, deadline_s=10.0)
    made.tell(Left(7.0, 2))
    for client, opened in made.open_tasks().items():
        if client == 2:
            made.tell(Failed(7.0, 2, opened.task, "the client left"))
    made.session.policy.speeds.pop(2)
    made.tell(Joined(8.0, 2, 200))
    said = made.tell(Timer(16.0, "round ends"))
    works = {command.client: command.work for command in of(Train, said)}
    assert works[2].stop_at is None
    assert works[0].stop_in == "layer"
    made.arrive(20.0, 2, depth=5, steps=1, rates=speed(8.0))
    said = made.tell(Timer(26.0, "round ends"))
    assert of(Aggregate, said)[0].missed is None
    assert {command.work.stop_in for command in of(Train, said)} == {"layer"}


def test_an_update_that_is_late_although_computing_stopped_in_time_has_a_slower_link(stage):
    made, _ = warmed(stage, clients=2, deadline_s=10.0)
    made.arrive(15.0, 0, depth=5, steps=1, rates=speed())
    made.tell(Timer(16.0, "round ends"))
    assert made.session.policy.speeds[1].up_s == 1.0
    made.arrive(25.0, 0, depth=5, steps=1, rates=speed())
    said = made.tell(Timer(26.0, "round ends"))
    assert made.session.policy.speeds[1].up_s == 2.0
    works = {command.client: command.work for command in of(Train, said)}
    assert works[1].stop_at == pytest.approx(26.0 + 10.0 - 2.0)


def test_who_gets_through_no_layer_three_times_in_a_row_is_asked_like_a_newcomer(stage):
    made, _ = warmed(stage, clients=2, deadline_s=10.0)
    for end in (16.0, 26.0, 36.0):
        assert made.open_tasks()[1].work.stop_in == "layer"
        made.tell(Failed(end - 1, 1, made.open_tasks()[1].task, "no layer was done in time"))
        made.arrive(end - 1, 0, depth=5, steps=1, rates=speed())
        made.tell(Timer(end, "round ends"))
    assert made.open_tasks()[1].work.stop_at is None


def test_a_client_that_drops_out_of_the_warm_up_says_nothing_about_its_speed(stage):
    made = stage(SALF, model=FIVE, clients=2, deadline_s=30.0)
    made.tell(Failed(0.001, 1, made.open_tasks()[1].task, "the client dropped out"))
    made.arrive(6.0, 0, depth=5, steps=1, rates=speed())
    assert 1 not in made.session.policy.speeds
    assert made.open_tasks()[1].work.stop_at is None


def rounds(made, count, depth, at=6.0, length=10.0):
    notes = []
    for _ in range(count):
        at += length
        for client in made.open_tasks():
            made.arrive(at, client, depth=depth, steps=1, rates=speed())
        said = made.tell(Timer(at, "round ends"))
        notes += [note.text for note in of(Note, said)]
    return of(Aggregate, said)[0], notes


def test_layers_that_are_never_missed_though_they_should_be_mean_that_times_are_steady(stage):
    made, _ = warmed(stage, clients=2, deadline_s=6.0, rates=[speed()] * 2)
    last, notes = rounds(made, 100, depth=5, length=6.0)
    assert notes == ["no layer is missed by chance: times are taken to be steady from now on"]
    assert last.missed is None


def test_layers_that_are_never_reached_though_they_should_be_mean_that_times_are_steady(stage):
    made, _ = warmed(stage, clients=2, deadline_s=6.0, rates=[speed()] * 2)
    last, notes = rounds(made, 30, depth=3, length=6.0)
    assert notes == ["no layer is reached by chance: times are taken to be steady from now on"]
    assert last.missed is None


def test_who_says_that_times_are_exponential_is_believed(stage):
    made, _ = warmed(stage, clients=2, deadline_s=6.0, times="exponential")
    last, notes = rounds(made, 100, depth=5, length=6.0)
    assert not notes
    assert last.missed is not None


def test_chances_count_what_the_layers_cost(stage):
    forward_too = ModelProfile.even(5, 5000, forward_share=0.5)
    made = stage(SALF, model=forward_too, clients=2, deadline_s=10.0)
    for client in range(2):
        made.arrive(6.0, client, depth=5, steps=1, rates=speed(10.0))
    made.arrive(15.0, 0, depth=2, steps=1, rates=speed(10.0))
    aggregate = of(Aggregate, made.tell(Timer(16.0, "round ends")))[0]
    # 9 s are for computing, 5 of them for the forward pass; a layer takes one on average.
    expected = missed_chances_at_rates(np.array([4.0, 4.0]), 5)
    assert aggregate.missed == pytest.approx(expected.tolist(), rel=1e-6)


def test_local_epochs_are_refused():
    with pytest.raises(ConfigError, match=r"epochs is 2.*set train\.steps"):
        SALF(SALF.Settings(), Context(0, 2, FIVE, 20, epochs=2))


def test_speeds_are_smoothed_in_time_not_in_speed(stage):
    made, _ = warmed(
        stage, clients=2, deadline_s=10.0, rates=[speed(4.0)] * 2, averaging=Averaging(smoothing=0.5)
    )
    made.arrive(9.0, 0, depth=5, steps=1, rates=speed(8.0))
    assert made.session.policy.speeds[0].samples_per_s == pytest.approx(5 * 20 / 6.0)


def test_batches_are_never_larger_than_the_data(stage):
    _, said = warmed(stage, clients=2, deadline_s=10.0, samples=[7, 200])
    assert [command.work.batch_size for command in of(Train, said)] == [7, 20]


def test_clients_count_by_their_samples_where_that_is_asked_for(stage):
    _, said = warmed(
        stage, clients=2, deadline_s=10.0, samples=[50, 200], averaging=Averaging(weigh="samples")
    )
    assert of(Aggregate, said)[0].weights == (50.0, 200.0)


def test_salf_ends_after_its_rounds(stage):
    made, _ = warmed(stage, clients=2, deadline_s=10.0, rounds=2)
    said = made.tell(Timer(16.0, "round ends"))
    assert of(Finish, said)[0].reason == "2 rounds are over"


@pytest.mark.parametrize(
    ("settings", "part"), [({"deadline_s": 0.0}, "deadline_s is 0"), ({"rounds": 0}, "rounds is 0")]
)
def test_wrong_settings_are_refused(settings, part):
    with pytest.raises(ConfigError, match=part):
        SALF.Settings(**settings)


@pytest.mark.parametrize("wrong", [{"cap": 1.0}, {"smoothing": 0.0}])
def test_wrong_averaging_is_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Averaging(**wrong)
