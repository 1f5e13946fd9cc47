"""Open tasks, their lateness, and why a run waits, with clients that are given."""

from types import SimpleNamespace

import pytest

from fedpace.core.books import OpenTask
from fedpace.core.commands import Probe, Train, Work
from fedpace.core.events import Rates
from fedpace.net import federation_pb2 as pb
from fedpace.net.connections import Connection
from fedpace.net.monitor.counters import RunCounters
from fedpace.net.monitor.delays import hold_ups, task_delays
from fedpace.remote.defence.deadlines import Deadlines
from fedpace.remote.reports import ClientRecord
from fedpace.remote.settings import ServeSettings

WORK = Work(20, epochs=1)
QUICK = Rates(0.1, 10, 1.0, 1.0)


class Situation:
    """Two clients: the first has a task of three seconds, the second none."""

    def __init__(self, now=0.0):
        self.now = now
        self.deadlines = Deadlines(ServeSettings(deadline_floor_s=1.0, deadline_factor=5.0))
        self.books = SimpleNamespace(open={}, timers={})
        self.records = [ClientRecord("a", online=True), ClientRecord("b", online=True)]
        self.started = True
        self.counters = RunCounters(lambda: self.now)
        self.a = Connection("a", "0" * 32, None, 0, now, True, outbox=None)
        self.a.rates = pb.Rates(batch_s=0.1, batches=10, down_s=1.0, up_s=1.0)

    @property
    def world(self):
        desk = SimpleNamespace(books=self.books, deadlines=self.deadlines)
        return SimpleNamespace(
            desk=desk, clients=self.records, now=lambda: self.now, started=self.started
        )

    def give(self, command, known=True):
        self.books.open[command.task] = OpenTask(command, self.now)
        self.deadlines.opened(command, self.now)
        self.counters.ordered(command.task)
        if known:
            self.deadlines.learned(0, QUICK, 20, done=True)

    def computes(self, task, steps):
        self.counters.downloading(task, 0)
        self.counters.downloaded(task)
        self.a.hear_beat(pb.Beat(task=task, steps=steps), self.now)

    def later(self, seconds):
        self.now += seconds
        self.a.seen_at = self.now

    def delays(self):
        return task_delays(self.world, [self.a], self.counters, self.now, 2.0)

    def waits(self, fault=""):
        return hold_ups(self.delays(), self.world, 2, fault)


def test_a_task_is_late_by_its_clients_own_speeds_and_says_when_it_fails():
    now = Situation()
    now.give(Train(0, 1, 0, WORK))
    now.computes(1, 4)
    now.later(2.0)
    (task,) = now.delays()
    assert (task.age_s, task.late_s, task.left_s) == (2.0, 0.0, pytest.approx(1.0))
    assert task.why == "it trains, 4 of 10 batches are done, at 0.1 s each"
    now.later(6.0)
    (task,) = now.delays()
    assert task.late_s == pytest.approx(5.0)
    assert task.why.endswith("; its task fails in 7 s")
    (told,) = now.waits()
    assert (told.name, told.late_s) == ("a", pytest.approx(5.0))


def test_nobody_is_late_whose_speed_is_not_known():
    now = Situation()
    now.give(Probe(0, 1, 0, 20), known=False)
    now.later(100.0)
    (task,) = now.delays()
    assert (task.late_s, task.left_s) == (0.0, None)


def test_the_reason_follows_the_task_through_its_phases():
    now, said = Situation(), []

    def say():
        said.append(now.delays()[0].why.partition(";")[0])

    now.give(Train(0, 1, 0, WORK))
    now.later(1.0)
    say()
    now.counters.downloading(1, 0)
    now.later(1.0)
    say()
    now.counters.downloaded(1)
    say()
    now.a.hear_beat(pb.Beat(task=1, steps=3), now.now)
    now.later(60.0)
    say()
    now.counters.uploading(1)
    now.later(2.0)
    say()
    now.now += 9.0
    say()
    now.a.open = False
    say()
    assert said == [
        "it has not asked for its model for 1.0 s",
        "its model is on its way for 1.0 s",
        "it has not begun to train",
        "it hangs: no batch for 60 s, after 3",
        "its update is on its way for 2.0 s",
        "nothing was heard of it for 9.0 s",
        "its connection is broken",
    ]


def test_the_latest_task_comes_first_and_three_are_named():
    now = Situation()
    now.records += [ClientRecord(f"c{number}", online=True) for number in range(4)]
    for client in range(6):
        now.books.open[client] = OpenTask(Train(client, client, 0, WORK), float(client))
        now.deadlines.learned(client, QUICK, 20, done=True)
    now.later(20.0)
    delays = now.delays()
    assert [one.client for one in delays] == [0, 1, 2, 3, 4, 5]
    assert [one.name for one in now.waits()] == ["a", "b", "c0"]


def test_a_run_without_open_tasks_says_what_it_waits_for():
    now = Situation()
    assert [one.why for one in now.waits()] == [
        "nobody has a task, and no timer is set: the policy waits for clients"
    ]
    now.books.timers = {"round": 3.0}
    assert [one.why for one in now.waits()] == ["nobody has a task; the policy waits 3.0 s for 'round'"]
    now.started, now.records[1].online = False, False
    assert [one.why for one in now.waits()] == ["waits for clients: 1 of 2 are here"]
    assert [one.why for one in now.waits("no room")] == ["waits for its disk: no room"]
