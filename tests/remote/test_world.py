"""The real world's clock, on a faked one: when it stands, and when it goes on."""

from concurrent.futures import Future
from pathlib import Path

import pytest

from fedpace.core.books import Bookkeeper
from fedpace.core.budget import Budget
from fedpace.core.commands import Train, Work
from fedpace.core.evaluation.metric import ACCURACY
from fedpace.core.events import Joined, Left, Started
from fedpace.core.run import MetricScore, Standing, StopSettings, Tick
from fedpace.learn.server.model_server import ModelServer
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings, TrainSettings
from fedpace.learn.train.trainer import Trainer
from fedpace.remote.reports import ClientLost, ClientReady
from fedpace.remote.settings import ServeSettings
from fedpace.remote.spool import Spool
from fedpace.remote.updates import ReceivedUpdates
from fedpace.remote.world import RemoteWorld
from fedpace.runs.progress.served import ProgressLog
from tests.net.toy_task import task

STEP_S = 0.002


class FakeClock:
    """Goes on a little whenever somebody looks at it."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        self.now += STEP_S
        return self.now


class Heard:
    """A transport that keeps orders."""

    def __init__(self) -> None:
        self.given: list[tuple[int, float | None]] = []

    def send_command(self, client, command, left_s):
        self.given.append((client, left_s))

    def send_ack(self, client, task):
        pass

    send_refusal = expel = send_ack


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def transport():
    return Heard()


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock, transport: Heard) -> RemoteWorld:
    """One whose journal was retraced up to second 10, with two clients, one of which has work."""
    (tmp_path / "clients.json").write_text('["one", "two"]')
    trainer = Trainer(task(), TrainSettings(), 0)
    store = ModelStore(trainer.layout, trainer.initial(), ServerSettings(), lambda _: {"loss": 0.0})
    spool = Spool(tmp_path / "spool", 1 << 20)
    models = ModelServer(store, ReceivedUpdates(spool))
    settings = ServeSettings(hold_s=20.0)
    made = RemoteWorld(
        2, settings, models, spool, transport, tmp_path / "clients.json", lambda: None, clock
    )
    books = Bookkeeper(Budget())
    made.attach(books)
    for event in (Joined(0.0, 0, 10), Joined(0.0, 1, 10), Started(0.0)):
        made.retrace(event)
        books.note(event)
    command = Train(0, 1, 0, Work(batch_size=5, epochs=1, stop_at=14.0))
    books.note(command)
    made.apply(command)
    made.resume(10.0)
    made.tick_at(10.05)
    assert made.next() == Tick(10.0, test=False)
    return made


def came(client: int) -> ClientReady:
    return ClientReady(client, 10, None, f"{client:032x}", True, Future())


def test_after_a_restart_time_stands_until_the_clients_are_back(world, clock, transport):
    clock.now += 5
    assert world.now() == 10
    world.put(came(0))
    clock.now += 5
    world.put(came(1))
    tick = world.next()
    assert isinstance(tick, Tick)
    assert tick.at == pytest.approx(10.05, abs=10 * STEP_S)
    assert transport.given == [(0, 4.0)]  # as much time as it had


def test_time_does_not_stand_for_those_who_will_not_be_back(world, clock):
    clock.now += 5
    world.put(came(0))
    world.put(ClientLost(1, "given up"))
    assert world.next() == Left(10.0, 1)
    assert world.next().at == pytest.approx(10.05, abs=10 * STEP_S)


def test_time_goes_on_without_them_in_the_end(world, clock):
    before = clock.now
    world.put(came(0))
    clock.now += 19
    assert world.now() == 10
    clock.now += 1.5
    tick = world.next()
    assert tick.at == pytest.approx(10.05, abs=10 * STEP_S)
    assert clock.now - before == pytest.approx(21, abs=1)


def test_the_log_has_a_line_a_round_and_not_more_than_one_a_second(caplog):
    now = [0.0]
    news = ProgressLog(StopSettings(rounds=100), lambda: now[0])
    caplog.set_level("INFO", logger="fedpace.server")
    for count in range(1, 31):
        now[0] += 0.1
        news(Standing(now[0], count, MetricScore(ACCURACY, 0.5)))
        news(Standing(now[0], count, MetricScore(ACCURACY, 0.5)))
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0] == "round 1 at 0.1 s, accuracy 50.0%"
    assert len(lines) == 3
    assert news.tested.value == 0.5
