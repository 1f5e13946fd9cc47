"""A node carries out one order, in the time that it has."""

import pytest
import torch

from fedpace.core.commands import Probe, Train, Work
from fedpace.core.errors import ConfigError, PeerError
from fedpace.flower.apps import client_app, read_run_config
from fedpace.flower.client import Worker, node_name
from fedpace.flower.messages import NodeMessage
from fedpace.learn.model.arrays import layout_digest, update_to_arrays, weights_to_arrays
from fedpace.learn.model.layers import Layout
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.trainer import Trainer
from fedpace.remote import packing as arrays
from fedpace.remote.messages import Introduction, TaskFailure, TaskOrder, TaskReport, from_json
from tests.flower.nodes_here import share, whole
from tests.messages import make_job

SEED, CLIENT = 5, 1
SETTINGS = '{"lr": 0.1, "batch_size": 8}'


def ordered(command, left_s=None, settings=SETTINGS):
    model = Trainer(whole(), TrainSettings(lr=0.1), SEED).initial()
    file = arrays.pack(weights_to_arrays(model))
    return NodeMessage.of(TaskOrder(command, SEED, settings, left_s), file)


def train(left_s=None, **work):
    return ordered(Train(CLIENT, 3, 2, Work(8, **work)), left_s)


def report_of(reply):
    return from_json(TaskReport, reply.text)


@pytest.fixture
def worker():
    return Worker(lambda: share(CLIENT))


def test_it_says_its_name_its_model_and_its_samples(worker):
    said = from_json(Introduction, worker.introduce("a").text)
    task = share(CLIENT)
    model = task.model()
    digest = layout_digest(Layout.trace(model, task.train[0][:2]), model)
    assert said == Introduction("a", digest, 18)


def test_its_update_is_the_one_of_the_simulator(worker):
    reply = worker.carry_out(train(steps=4))
    trainer = Trainer(whole(), TrainSettings(lr=0.1), SEED)
    job = make_job(CLIENT, 3, 4, 4, trainer.layout.depth, 8, 2)
    expected = update_to_arrays(trainer.run(job, trainer.initial()))
    found = arrays.unpack(reply.file, 1 << 20)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert torch.allclose(torch.tensor(found[name]), torch.tensor(array), atol=1e-6), name
    report = report_of(reply)
    assert (report.task, report.version, report.batches) == (3, 2, 3)
    assert (report.result.steps, report.result.cut) == (4, False)


def test_without_time_it_trains_one_batch(worker):
    done = report_of(worker.carry_out(train(left_s=-2.0, epochs=2, stop_at=9.0))).result
    assert (done.steps, done.cut) == (1, True)


def test_what_is_stopped_in_a_layer_can_come_to_nothing(worker):
    reply = worker.carry_out(train(left_s=-2.0, steps=2, stop_at=9.0, stop_in="layer"))
    assert reply.file is None
    assert "no layer was done in time" in from_json(TaskFailure, reply.text).reason


def test_building_model_and_data_takes_no_time_of_the_task():
    now = 0.0

    def slow():
        nonlocal now
        now += 1000.0
        return share(CLIENT)

    worker = Worker(slow, clock=lambda: now)
    report = report_of(worker.carry_out(train(left_s=0.5, epochs=2, stop_at=9.0)))
    assert (report.result.steps, report.result.cut) == (6, False)
    assert report.busy_s == 0.0


def test_a_probe_trains_one_batch_and_does_not_go_on(worker):
    reply = worker.carry_out(ordered(Probe(CLIENT, 3, 2, 8, go_on=True)))
    assert reply.file is None
    report = report_of(reply)
    assert (report.task, report.batches, report.result) == (3, 3, None)
    assert 0 < report.batch_s <= report.busy_s


@pytest.mark.parametrize(
    ("settings", "change", "reason"),
    [
        (SETTINGS, lambda one: NodeMessage(one.text), "came without a model"),
        (SETTINGS, lambda one: NodeMessage(one.text, b"nonsense"), "cannot be used"),
        ("{", lambda one: one, "no JSON"),
    ],
    ids=["no model", "broken model", "settings"],
)
def test_it_says_why_an_order_came_to_nothing(worker, settings, change, reason):
    for command in (Train(CLIENT, 3, 2, Work(8, steps=1)), Probe(CLIENT, 3, 2, 8)):
        reply = worker.carry_out(change(ordered(command, settings=settings)))
        failed = from_json(TaskFailure, reply.text)
        assert failed.task == 3
        assert reason in failed.reason


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", train(steps=1).text.replace('"seed":5', '"seed":"x"')],
    ids=["empty", "cut", "list", "no fields", "seed"],
)
def test_an_order_that_is_none_is_an_error(worker, text):
    with pytest.raises(PeerError, match="a message cannot be read"):
        worker.carry_out(NodeMessage(text, b""))


def test_a_factory_must_give_a_task():
    with pytest.raises(ConfigError, match="must return a fedpace Task"):
        Worker(lambda: 3).introduce("a")


def test_a_node_is_known_by_its_name_its_partition_or_its_number():
    assert node_name(9, {"name": "north", "partition-id": 1}) == "north"
    assert node_name(9, {"partition-id": 1}) == "partition-1"
    assert node_name(9, {}) == "node-9"


def test_the_run_config_overrides_the_config():
    base = {"clients": 2, "stop": {"rounds": 9}, "name": "before"}
    run_config = {"policy": "fedbuff", "stop.rounds": 3, "name": "3", "flower.message_s": 4.0}
    config, flower = read_run_config(base, run_config | {"flower.out": "here"})
    assert (config.policy, config.stop.rounds, config.name, config.clients) == ("fedbuff", 3, "3", 2)
    assert (flower.message_s, flower.out) == (4.0, "here")


def test_a_key_that_does_not_exist_is_an_error():
    with pytest.raises(ConfigError, match=r"unknown key 'flower.mesage_s' \(did you mean 'message_s'"):
        read_run_config({}, {"flower.mesage_s": 4.0})
    with pytest.raises(ConfigError, match="unknown key 'polcy'"):
        read_run_config({}, {"polcy": "sync"})


def test_without_flower_the_apps_say_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "flwr.app", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedpace\[flower\]'"):
        client_app(whole)
