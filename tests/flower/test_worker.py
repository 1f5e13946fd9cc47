"""What a node does with one letter, in the time that it has."""

import pytest
import torch

from fedpace.core import codec
from fedpace.core.commands import Probe, Train, Work
from fedpace.core.errors import ConfigError, PeerError
from fedpace.core.events import TaskResult
from fedpace.flower.apps import client_app, read_run_config
from fedpace.flower.client import Worker, node_name
from fedpace.flower.letters import Letter, record
from fedpace.learn.model.arrays import layout_digest, update_to_arrays, weights_to_arrays
from fedpace.learn.model.layers import Layout
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.trainer import Trainer
from fedpace.net import federation_pb2 as pb
from fedpace.net import wire
from fedpace.remote import packing as arrays
from tests.flower.nodes_here import share, whole
from tests.messages import make_job

SEED, CLIENT = 5, 1
WELCOME = {"seed": SEED, "client": CLIENT, "settings": '{"lr": 0.1, "batch_size": 8}'}


def letter_of(command, left_s=None, welcome=WELCOME):
    model = Trainer(whole(), TrainSettings(lr=0.1), SEED).initial()
    name = "train" if isinstance(command, Train) else "probe"
    message = getattr(wire.order(command, left_s), name)
    file = arrays.pack(weights_to_arrays(model))
    return Letter({"welcome": welcome, name: record(message)}, file)


def train(left_s=None, **work):
    return letter_of(Train(CLIENT, 3, 2, Work(8, **work)), left_s)


@pytest.fixture
def worker():
    return Worker(lambda: share(CLIENT))


def result_of(done):
    return codec.decode_as(TaskResult, done.result.encode())


def test_it_says_its_name_its_model_and_its_samples(worker):
    letter = worker.hello("a")
    task = share(CLIENT)
    model = task.model()
    digest = layout_digest(Layout.trace(model, task.train[0][:2]), model)
    assert letter.records == {"hello": {"name": "a", "model": digest}, "ready": {"samples": 18}}


def test_its_update_is_the_one_of_the_simulator(worker):
    letter = worker.train(train(steps=4))
    trainer = Trainer(whole(), TrainSettings(lr=0.1), SEED)
    a_job = make_job(CLIENT, 3, 4, 4, trainer.layout.depth, 8, 2)
    expected = update_to_arrays(trainer.run(a_job, trainer.initial()))
    found = arrays.unpack(letter.file, 1 << 20)
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert torch.allclose(torch.tensor(found[name]), torch.tensor(array), atol=1e-6), name
    done = letter.read("done", pb.Done)
    result = result_of(done)
    assert (done.task, done.version, result.steps, result.cut) == (3, 2, 4, False)
    assert letter.read("rates", pb.Rates).batches == 3


def test_without_time_it_trains_one_batch(worker):
    result = result_of(worker.train(train(left_s=-2.0, epochs=2, stop_at=9.0)).read("done", pb.Done))
    assert (result.steps, result.cut) == (1, True)


def test_what_is_stopped_in_a_layer_can_come_to_nothing(worker):
    letter = worker.train(train(left_s=-2.0, steps=2, stop_at=9.0, stop_in="layer"))
    assert letter.file is None
    assert "no layer was done in time" in letter.read("failed", pb.Failed).reason


def test_building_model_and_data_takes_no_time_of_the_task():
    now = 0.0

    def slow():
        nonlocal now
        now += 1000.0
        return share(CLIENT)

    letter = Worker(slow, clock=lambda: now).train(train(left_s=0.5, epochs=2, stop_at=9.0))
    result = result_of(letter.read("done", pb.Done))
    assert (result.steps, result.cut) == (6, False)
    assert letter.busy_s == 0.0


def test_a_probe_trains_one_batch_and_does_not_go_on(worker):
    letter = worker.probe(letter_of(Probe(CLIENT, 3, 2, 8, go_on=True)))
    assert letter.file is None
    assert letter.records["profiled"] == {"task": 3}
    rates = letter.read("rates", pb.Rates)
    assert 0 < rates.batch_s <= letter.busy_s
    assert rates.batches == 3


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda one: Letter(one.records), "came without a model"),
        (lambda one: Letter(one.records, b"nonsense"), "cannot be used"),
        (lambda one: Letter(dict(one.records) | {"welcome": {"settings": "{"}}, one.file), "no JSON"),
        (
            lambda one: Letter(dict(one.records) | {"welcome": {"seed": "x"}}, one.file),
            "cannot be read",
        ),
    ],
    ids=["no model", "broken model", "settings", "welcome"],
)
def test_it_says_why_an_order_came_to_nothing(worker, change, reason):
    for answer, letter in [
        (worker.train, train(steps=1)),
        (worker.probe, letter_of(Probe(CLIENT, 3, 2, 8))),
    ]:
        failed = answer(change(letter)).read("failed", pb.Failed)
        assert failed.task == 3
        assert reason in failed.reason


def test_an_order_that_is_none_is_an_error(worker):
    with pytest.raises(PeerError, match="there is no train"):
        worker.train(Letter({}))


def test_a_factory_must_give_a_task():
    with pytest.raises(ConfigError, match="must return a fedpace Task"):
        Worker(lambda: 3).hello("a")


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
