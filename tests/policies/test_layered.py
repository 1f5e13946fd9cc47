"""What ADEL-FL and SALF share: the warm-up, stops inside the backward pass, the correction."""

import numpy as np
import pytest

from fedpace.core.commands import Aggregate, Cancel, Finish, Note, SetTimer, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined, Left, Rates, Timer
from fedpace.core.model import ModelProfile
from fedpace.planning.deadline_bound import missed_at
from fedpace.policies.layered import Averaging
from fedpace.policies.salf import SALF

from .conftest import of

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
    made.arrive(6.0, 0, depth=5, steps=1, rates=speed())
    assert made.tell(Timer(30.0, "round ends")) == []  # one is not enough
    said = made.arrive(40.0, 1, depth=5, steps=1, rates=speed())
    assert [command.client for command in of(Cancel, said)] == [2, 3]
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
    expected = missed_at(np.array([10 * 9 / 20, 5 * 9 / 20]), 5)
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
    ("settings", "part"),
    [
        ({"deadline_s": 0.0}, "deadline_s is 0"),
        ({"rounds": 0}, "rounds is 0"),
    ],
)
def test_wrong_settings_are_refused(settings, part):
    with pytest.raises(ConfigError, match=part):
        SALF.Settings(**settings)


@pytest.mark.parametrize("wrong", [{"cap": 1.0}, {"smoothing": 0.0}])
def test_wrong_averaging_is_refused(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Averaging(**wrong)
