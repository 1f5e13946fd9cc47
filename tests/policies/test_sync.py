import pytest

from fedpace.core.commands import Aggregate, Cancel, SetTimer, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined, Left, Timer
from fedpace.policies.shared.waiting import DEADLINE
from fedpace.policies.sync import Sync, SyncSettings

from .conftest import of


def test_a_round_waits_for_all_it_asked_and_weighs_by_samples(stage):
    on = stage(Sync, clients=3, samples=(200, 50, 300))
    assert [train.work.epochs for train in of(Train, on.first)] == [1, 1, 1]
    assert on.arrive(1.0, 0) == []
    assert on.arrive(2.0, 1) == []
    ending = on.arrive(90.0, 2, samples=160)  # it has 300, though it did not get through them
    (mean,) = of(Aggregate, ending)
    assert mean.weights == (200.0, 50.0, 300.0)
    assert [train.version for train in of(Train, ending)] == [1, 1, 1]


def test_over_selection_takes_the_first_n_and_cancels_the_others(stage):
    on = stage(Sync, clients=4, n=2, over_selection=1.5)
    asked = [train.client for train in of(Train, on.first)]
    assert len(asked) == 3
    on.arrive(1.0, asked[2])
    ending = on.arrive(2.0, asked[0])
    assert [cancel.client for cancel in of(Cancel, ending)] == [asked[1]]
    assert len(of(Aggregate, ending)[0].tasks) == 2


def test_at_the_deadline_who_is_late_is_dropped(stage):
    on = stage(Sync, clients=3, deadline_s=5.0)
    assert of(SetTimer, on.first) == [SetTimer(DEADLINE, 5.0)]
    on.arrive(1.0, 1)
    ending = on.tell(Timer(5.0, DEADLINE))
    assert sorted(cancel.client for cancel in of(Cancel, ending)) == [0, 2]
    assert len(of(Aggregate, ending)[0].tasks) == 1
    assert of(SetTimer, ending) == [SetTimer(DEADLINE, 10.0)]


def test_deployed_the_deadline_is_stretched_by_the_slack(stage):
    on = stage(Sync, clients=3, deadline_s=5.0, slack=0.1)
    assert of(SetTimer, on.first) == [SetTimer(DEADLINE, 5.5)]


def test_a_deadline_waits_for_its_quorum(stage):
    on = stage(Sync, clients=3, deadline_s=5.0, quorum=2)
    on.arrive(1.0, 1)
    assert on.tell(Timer(5.0, DEADLINE)) == []
    assert len(of(Aggregate, on.arrive(8.0, 0))[0].tasks) == 2


def test_without_a_quorum_a_round_may_be_empty(stage):
    on = stage(Sync, clients=2, deadline_s=5.0, quorum=0)
    assert of(Aggregate, on.tell(Timer(5.0, DEADLINE))) == [Aggregate((), ())]


def test_failures_are_not_waited_for_and_replaced_only_below_the_quorum(stage):
    on = stage(Sync, clients=4, n=2)
    first, second = of(Train, on.first)
    on.arrive(1.0, first.client)
    ending = on.tell(Failed(2.0, second.client, second.task, "crashed"))
    assert len(of(Aggregate, ending)[0].tasks) == 1

    on = stage(Sync, clients=4, n=2, quorum=2)
    first, second = of(Train, on.first)
    on.arrive(1.0, first.client)
    (replacement,) = on.tell(Failed(2.0, second.client, second.task, "crashed"))
    assert isinstance(replacement, Train)
    assert replacement.client != first.client


def test_with_nobody_there_it_waits_for_the_next_to_join(stage):
    on = stage(Sync, clients=1)
    task = on.open_tasks()[0].task
    on.tell(Left(1.0, 0))
    assert on.tell(Failed(1.0, 0, task, "the client left")) == []
    (train,) = on.tell(Joined(5.0, 0, 10))
    assert train.version == 0


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"over_selection": 0.5}, "over_selection is 0.5"),
        ({"deadline_s": 0.0}, "deadline_s is 0.0"),
        ({"deadline_s": float("nan")}, "deadline_s is nan"),
        ({"quorum": -1}, "quorum is -1"),
        ({"n": 0}, "n is 0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, complaint):
    with pytest.raises(ConfigError, match=complaint):
        SyncSettings(**wrong)


def test_a_quorum_larger_than_the_round_is_refused(stage):
    with pytest.raises(ConfigError, match="quorum is 3, but a round has 2 clients"):
        stage(Sync, n=2, quorum=3)
