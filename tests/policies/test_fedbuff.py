import pytest

from fedpace.core.commands import Aggregate, Drop, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined
from fedpace.policies.fedbuff import FedBuff, FedBuffSettings
from fedpace.policies.shared.staleness import polynomial

from .conftest import of


def test_staleness_factors_by_hand():
    assert polynomial(0, 0.5) == 1.0
    assert polynomial(3, 0.5) == 0.5
    assert polynomial(8, 1.0) == pytest.approx(1 / 9)
    assert polynomial(5, 0.0) == 1.0


def test_the_buffer_is_summed_over_k_with_staleness_counted_from_the_download(stage):
    on = stage(FedBuff, clients=4, concurrency=3, k=2, server_lr=0.7)
    slow, quick, other = (train.client for train in of(Train, on.first))
    on.arrive(1.0, quick)
    (first,) = of(Aggregate, on.arrive(2.0, other))
    assert first.rule == "sum"
    assert first.lr == 0.7
    assert first.weights == (0.5, 0.5)
    on.arrive(3.0, slow)  # trained on version 0, the model is at version 1
    newest = max(on.open_tasks().values(), key=lambda command: command.version)
    (second,) = of(Aggregate, on.arrive(4.0, newest.client))
    assert second.weights == pytest.approx((2**-0.5 / 2, (2 - newest.version) ** -0.5 / 2))


def test_as_many_train_as_concurrency_says_at_any_time(stage):
    on = stage(FedBuff, clients=6, concurrency=3, k=2)
    for at in range(1, 20):
        on.arrive(float(at), min(on.open_tasks()))
        assert len(on.open_tasks()) == 3
    failing = on.open_tasks()[min(on.open_tasks())]
    on.tell(Failed(30.0, failing.client, failing.task, "crashed"))
    assert len(on.open_tasks()) == 3


def test_updates_that_are_too_old_are_dropped(stage):
    on = stage(FedBuff, clients=3, concurrency=3, k=1, max_staleness=1)
    clients = [train.client for train in of(Train, on.first)]
    on.arrive(1.0, clients[0])
    on.arrive(2.0, clients[1])
    commands = on.arrive(3.0, clients[2])  # two versions behind
    assert [drop.reason for drop in of(Drop, commands)] == ["staleness 2 is over 1"]
    assert of(Aggregate, commands) == []


def test_a_newcomer_gets_work_where_there_is_room(stage):
    on = stage(FedBuff, clients=3, concurrency=3)
    assert on.tell(Joined(1.0, 7, 10)) == []
    failing = on.open_tasks()[0]
    assert [t.client for t in of(Train, on.tell(Failed(2.0, 0, failing.task, "x")))] in ([0], [7])


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"k": 0}, "k is 0"),
        ({"concurrency": 0}, "concurrency is 0"),
        ({"max_staleness": -1}, "max_staleness is -1"),
        ({"server_lr": 0.0}, "server_lr is 0.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong, complaint):
    with pytest.raises(ConfigError, match=complaint):
        FedBuffSettings(**wrong)


def test_more_concurrency_than_clients_is_refused(stage):
    with pytest.raises(ConfigError, match="concurrency is 9, but 4 clients are in the fleet"):
        stage(FedBuff, concurrency=9)
