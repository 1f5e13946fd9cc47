"""Commands go out one by one and with the right time; replies become what the run is told."""

from dataclasses import dataclass, field

import pytest

from fedpace.core.commands import Cancel, Probe, Train, Work
from fedpace.core.errors import ConfigError, PeerError
from fedpace.core.events import Arrived, Failed, Profiled, TaskResult
from fedpace.flower.messages import HELLO, PROBE, TRAIN, NodeMessage, NodeReply
from fedpace.flower.settings import FlowerSettings
from fedpace.flower.transport import FlowerTransport
from fedpace.remote.messages import Introduction, TaskFailure, TaskOrder, TaskReport, from_json
from fedpace.remote.reports import ClientLost, ClientReady, JoinRequest
from fedpace.remote.spool import Spool

MESSAGE_S = 6.0
BATCH_S, BATCHES = 0.5, 10
RESULT = TaskResult(2, 4, 4, 20, 32)


@dataclass
class World:
    """Notes what it is told, and numbers clients by their names."""

    told: list = field(default_factory=list)
    names: list = field(default_factory=list)
    shut: set = field(default_factory=set)

    def put(self, report):
        if isinstance(report, JoinRequest):
            if report.name in self.shut:
                report.answer.set_exception(PeerError(f"{report.name} is shut out"))
                return
            if report.name not in self.names:
                self.names.append(report.name)
            report.answer.set_result(self.names.index(report.name))
        else:
            self.told.append(report)

    def wants(self, client, task):
        return True

    def of(self, kind):
        return [one for one in self.told if isinstance(one, kind)]


class Models:
    def file(self, task):
        return None if task == 13 else b"model"


@dataclass
class Site:
    """A transport, its clock, and nodes whose answers a test gives."""

    spool: Spool
    now: float = 100.0
    listed: list = field(default_factory=lambda: [7])
    sent: list = field(default_factory=list)
    replies: list = field(default_factory=list)
    takes: bool = True
    world: World = field(default_factory=World)

    def __post_init__(self):
        settings = FlowerSettings(message_s=MESSAGE_S, ttl_s=99.0)
        self.transport = FlowerTransport(
            self, settings, 3, "{}", "digest", Models(), self.spool, 600.0, lambda: self.now
        )
        self.transport.attach(self.world)

    def nodes(self):
        return self.listed

    def push(self, node, kind, message, ttl_s):
        assert ttl_s == 99.0
        self.sent.append((node, kind, message))
        return f"{len(self.sent)}" if self.takes else None

    def pull(self, ids):
        found = [one for one in self.replies if one.to in ids]
        self.replies = [one for one in self.replies if one.to not in ids]
        return found

    def answer(self, number, message, file=None, after_s=0.0):
        """The answer to message `number`, the first being 1, comes after a while."""
        self.now += after_s
        self.replies.append(NodeReply(f"{number}", NodeMessage.of(message, file)))
        self.transport.turn()
        self.transport.turn()

    def join(self, number=1, name="a", model="digest", samples=20):
        self.transport.turn()
        self.answer(number, Introduction(name, model, samples), after_s=4.0)

    def give(self, command, left_s=None, client=0):
        self.transport.send_command(client, command, left_s)
        self.transport.turn()

    def done(self, number, task, after_s=0.0, busy_s=0.0):
        self.answer(number, report(task, busy_s), b"update", after_s)


def report(task=1, busy_s=0.0, result=RESULT, batches=BATCHES):
    return TaskReport(task, BATCH_S, batches, busy_s, 0, result)


@pytest.fixture
def site(tmp_path):
    return Site(Spool(tmp_path, 1 << 20))


def train(task, client=0, **work):
    return Train(client, task, 0, Work(8, steps=4, **work))


def order(site):
    """What the last message asks for."""
    _, kind, message = site.sent[-1]
    found = from_json(TaskOrder, message.text)
    assert isinstance(found.command, Train if kind == TRAIN else Probe)
    return found


def test_a_node_is_asked_who_it_is_and_then_takes_part(site):
    site.join()
    assert [kind for _, kind, _ in site.sent] == [HELLO]
    came = site.world.of(ClientReady)
    assert [(one.client, one.samples, one.instance) for one in came] == [(0, 20, "7")]


def test_an_order_carries_the_model_and_what_a_new_process_has_to_know(site):
    site.join()
    site.give(train(1, depth=2))
    node, kind, message = site.sent[-1]
    assert (node, kind, message.file) == (7, TRAIN, b"model")
    assert order(site) == TaskOrder(train(1, depth=2), 3, "{}")


def test_a_node_gets_one_message_at_a_time(site):
    site.join()
    site.give(train(1))
    site.give(train(2))
    assert len(site.sent) == 2
    site.done(2, 1, after_s=9.0)
    assert [kind for _, kind, _ in site.sent] == [HELLO, TRAIN, TRAIN]
    assert order(site).command.task == 2


def test_other_nodes_do_not_wait_for_it(site):
    site.listed = [7, 8]
    site.join()
    site.join(2, "b")
    site.give(train(1))
    site.give(train(2, 1), client=1)
    assert [node for node, kind, _ in site.sent if kind == TRAIN] == [7, 8]


def test_what_is_cancelled_before_it_is_sent_never_is(site):
    site.join()
    site.give(train(1))
    site.give(train(2))
    site.give(Cancel(0, 2, "late"))
    site.done(2, 1)
    assert len(site.sent) == 2


def test_what_is_over_when_its_turn_comes_is_not_sent(site):
    site.join()
    site.give(train(13))
    assert len(site.sent) == 1


def test_what_is_cancelled_afterwards_keeps_its_node_busy_until_it_answers(site):
    site.join()
    site.give(train(1))
    site.give(Cancel(0, 1, "late"))
    site.give(train(2))
    assert len(site.sent) == 2
    site.done(2, 1, after_s=30.0)
    assert order(site).command.task == 2
    assert len(site.world.of(Arrived)) == 1  # the session knows that nobody waits for it


def test_time_for_work_is_counted_from_the_beginning_of_training(site):
    site.join()
    site.give(train(1, stop_at=50.0), left_s=20.0)
    assert order(site).left_s == pytest.approx(20.0 - MESSAGE_S / 2)


def test_time_for_work_shrinks_while_it_waits_for_its_node(site):
    site.join()
    site.give(train(1))
    site.give(train(2, stop_at=50.0), left_s=20.0)
    site.done(2, 1, after_s=5.0, busy_s=5.0)
    assert order(site).left_s == pytest.approx(15.0 - MESSAGE_S / 2)


def test_the_way_of_a_message_is_at_least_what_is_set_and_more_where_it_took_more(site):
    site.join()
    site.give(train(1))
    site.done(2, 1, after_s=5.0, busy_s=3.0)
    rates = site.world.of(Arrived)[-1].rates
    assert (rates.batch_s, rates.batches) == (0.5, 10)
    assert (rates.down_s, rates.up_s, rates.latency_s) == (3.0, 3.0, 3.0)
    site.give(train(2))
    site.done(3, 2, after_s=13.0, busy_s=3.0)
    rates = site.world.of(Arrived)[-1].rates
    assert (rates.down_s, rates.up_s, rates.latency_s) == (5.0, 5.0, 3.0)
    site.give(train(3, stop_at=50.0), left_s=20.0)
    assert order(site).left_s == pytest.approx(15.0)


def test_work_after_a_probe_is_a_message_of_its_own_and_policies_know(site):
    """A policy counts on down_s + compute + up_s from the probe: that is when the update is there."""
    site.join()
    began = site.now
    site.give(Probe(0, 1, 0, 8))
    assert site.sent[-1][1] == PROBE
    site.answer(2, report(busy_s=0.5, result=None), after_s=8.5)
    rates = site.world.of(Profiled)[0].rates
    assert (rates.down_s, rates.up_s, rates.latency_s) == (12.0, 4.0, 4.0)
    there_at = began + rates.down_s + 60.0 + rates.up_s
    stop_at = there_at - rates.up_s
    site.give(train(1, stop_at=stop_at), left_s=stop_at - site.now)
    work_s = order(site).left_s
    assert work_s == pytest.approx(59.5)  # all but the batch that the probe has taken
    assert site.now + 8.0 + work_s == pytest.approx(there_at)


def test_an_update_is_on_disk_before_the_run_hears_of_it(site):
    site.join()
    site.give(train(1))
    site.done(2, 1)
    assert site.spool.path(1).read_bytes() == b"update"
    arrived = site.world.of(Arrived)[0]
    assert (arrived.client, arrived.task, arrived.result.depth, arrived.up_bytes) == (0, 1, 2, 6)


def reply(message, file=None):
    return NodeReply("2", NodeMessage.of(message, file))


TEXT = NodeMessage.of(report()).text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (NodeReply("2", None, "it took too long"), "it took too long"),
        (reply(TaskFailure(1, "no memory")), "no memory"),
        (NodeReply("2", NodeMessage()), "cannot be read"),
        (NodeReply("2", NodeMessage("{}")), "cannot be read"),
        (reply(Introduction("a", "digest", 20)), "cannot be read"),
        (NodeReply("2", NodeMessage(TEXT.replace("0.5", '"fast"'))), "cannot be read"),
        (NodeReply("2", NodeMessage(TEXT.replace("0.5", "1e999"))), "cannot be read"),
        (NodeReply("2", NodeMessage(TEXT.replace("0.5", "NaN"))), "cannot be read"),
        (NodeReply("2", NodeMessage(TEXT.replace('"steps":4', '"steps":"many"'))), "cannot be read"),
        (reply(report(batches=0)), "impossible rates"),
        (reply(report(task=2), b"x"), "answered with task 2"),
        (reply(report(result=None), b"x"), "without an update"),
        (reply(report()), "without an update"),
        (reply(report(busy_s=-1.0), b"x"), "busy_s is -1.0"),
        (reply(report(), b"x" * (2 << 20)), "2097152 bytes"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_a_reply_that_is_none_fails_its_task(site, given, reason):
    site.join()
    site.give(train(1))
    site.replies.append(given)
    site.transport.turn()
    failed = site.world.of(Failed)
    assert [(one.client, one.task) for one in failed] == [(0, 1)]
    assert reason in failed[0].reason
    site.give(train(3))
    assert order(site).command.task == 3


def test_a_message_that_flower_does_not_take_fails_its_task(site):
    site.join()
    site.takes = False
    site.give(train(1))
    assert [one.task for one in site.world.of(Failed)] == [1]


def test_a_node_that_is_listed_no_more_has_left(site):
    site.join()
    site.give(train(1))
    site.listed = []
    site.transport.turn()
    assert [one.client for one in site.world.of(ClientLost)] == [0]
    site.give(train(2))
    assert len(site.sent) == 2
    site.listed = [7]
    site.join(3)
    assert [one.client for one in site.world.of(ClientReady)] == [0, 0]


@pytest.mark.parametrize(
    "wrong", [{"model": "other"}, {"name": "a/b"}, {"samples": 0}], ids=["model", "name", "samples"]
)
def test_a_node_that_does_not_fit_is_asked_again_later_and_later(site, wrong):
    site.join(**wrong)
    assert site.world.told == []
    site.now += 9.0
    site.transport.turn()
    assert len(site.sent) == 1
    site.now += 1.0
    site.join(2, **wrong)
    site.now += 19.0
    site.transport.turn()
    assert len(site.sent) == 2
    site.now += 1.0
    site.join(3)
    assert len(site.world.of(ClientReady)) == 1


def test_a_node_for_which_there_is_no_place_is_asked_again(site):
    site.world.shut.add("a")
    site.join()
    assert site.world.of(ClientReady) == []
    site.world.shut.clear()
    site.now += 10.0
    site.join(2)
    assert len(site.world.of(ClientReady)) == 1


def test_an_expelled_node_is_left_alone_for_a_while(site):
    site.join()
    site.transport.expel(0, "garbage")
    site.transport.turn()
    assert site.world.of(ClientLost) == [ClientLost(0, "garbage")]
    site.give(train(1))
    site.now += 599.0
    site.transport.turn()
    assert len(site.sent) == 1
    site.now += 1.0
    site.join(2)
    assert len(site.world.of(ClientReady)) == 2


def test_a_node_that_the_run_does_not_let_in_is_asked_again(site):
    """Its number may have come before the client was shut out, and it itself afterwards."""
    site.join()
    came = site.world.of(ClientReady)[0]
    assert came.answer.set_running_or_notify_cancel()
    came.answer.set_exception(PeerError("a is shut out"))
    site.transport.turn()
    site.give(train(1))
    assert len(site.sent) == 1
    site.now += 10.0
    site.join(2)
    assert len(site.world.of(ClientReady)) == 2
    site.world.of(ClientReady)[1].answer.set_result(())
    site.give(train(1))
    assert order(site).command.task == 1


def test_of_two_nodes_with_one_name_the_later_one_takes_part(site):
    site.listed = [7, 8]
    site.join()
    site.join(2)
    assert [one.instance for one in site.world.of(ClientReady)] == ["7", "8"]
    site.give(train(1))
    assert site.sent[-1][0] == 8
    site.listed = [8]
    site.transport.turn()
    assert site.world.of(ClientLost) == []


def test_who_was_here_before_a_restart_has_some_time_to_come_back(site):
    site.transport.registry.expect([0, 1], 60.0)
    site.join()
    site.now += 60.0
    site.transport.turn()
    assert [one.client for one in site.world.of(ClientLost)] == [1]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"message_s": -1.0}, "message_s is -1.0; set it to 0 or more"),
        ({"poll_s": 0.0}, "poll_s is 0.0; set it above 0"),
        ({"ttl_s": float("inf")}, "ttl_s is inf; set it above 0"),
        ({"out": ""}, "out is empty"),
        ({"resume": True, "overwrite": True}, "choose one"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_settings_that_cannot_be_are_refused(values, says):
    with pytest.raises(ConfigError, match=says):
        FlowerSettings(**values)
