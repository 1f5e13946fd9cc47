"""Runs whose data arrives over time: what clients train on, what they tell, and what it takes."""

import pickle
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

import fedpace
from fedpace.core.commands import GLOBAL, Aggregate, Blend, Probe, Train, Work
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Joined, Left, Profiled, Started
from fedpace.core.model import ModelProfile
from fedpace.data.partition import PartitionSettings
from fedpace.data.streams import Stream, StreamSettings
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer, TrainSettings
from fedpace.runs import plugins
from fedpace.runs.config import Config
from fedpace.runs.learning import divide
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld
from tests.messages import make_job
from tests.sim.driven import Driven
from tests.sim.test_resume import Stop, assert_same, stopping_after

MODEL = ModelProfile.even(10, 1_000_000)
SEED = 3


def world(samples=(500,), behaviour=None, **stream):
    """0.1 s a sample, a second each way."""
    settings = Explicit.Settings((0.1,), (8.0,), (8.0,), Behaviour(**behaviour or {}))
    fleet = Explicit.build(settings, len(samples), SEED)
    stream = {"arrival": "smooth", "initial": 30, "amount": 10} | stream
    made = Stream(StreamSettings(**stream), samples, SEED)
    return Driven(SimulatedWorld(fleet, samples, MODEL, TimingOnly(), made)), made


def begin(a_world):
    joined = []
    while not isinstance(event := a_world.next(), Started):
        joined.append(event)
    return joined


def epoch(a_world, task, version=0, at=0.0):
    a_world.carry_out(Train(0, task, version, Work(20, epochs=1)), at)
    return a_world.next()


def rounds(a_world, count):
    for _ in range(count):
        a_world.carry_out(Aggregate((), ()), 0.0)


def test_clients_join_with_what_they_have_and_say_what_they_can_hold():
    a_world, _ = world((500, 20, 35), buffer=40)
    assert begin(a_world) == [
        Joined(0.0, 0, 30, most=40),
        Joined(0.0, 1, 20, most=20),
        Joined(0.0, 2, 30, most=35),
    ]


def test_an_epoch_is_what_the_client_holds_when_its_task_begins():
    a_world, _ = world(buffer=60)
    begin(a_world)
    found = []
    for task, version in enumerate((0, 2, 100), start=1):
        rounds(a_world, version - (0, 0, 2)[task - 1])
        event = epoch(a_world, task, version)
        found.append(
            (event.result.seen, event.result.samples, event.result.trained, event.result.steps)
        )
        assert event.at == pytest.approx(2 + 0.1 * event.result.trained)
        assert event.rates.batches == event.result.steps
    assert found == [(30, 30, 30, 2), (50, 50, 50, 3), (500, 60, 60, 3)]


def test_what_comes_during_a_task_is_for_the_next_one():
    a_world, _ = world(clock="seconds", every=1.0)
    begin(a_world)
    a_world.carry_out(Probe(0, 1, 0, 20, go_on=False), 0.0)
    profiled = a_world.next()
    assert isinstance(profiled, Profiled)
    assert profiled.rates.batches == 2
    a_world.carry_out(Train(0, 1, 0, Work(20, epochs=1)), 9.0)
    first = a_world.next()
    assert (first.result.seen, first.result.trained) == (30, 30)
    second = epoch(a_world, 2, at=first.at)
    assert second.result.seen == 30 + 10 * int(first.at)


def test_rounds_are_those_of_the_global_model():
    a_world, _ = world()
    begin(a_world)
    a_world.carry_out(Aggregate((), (), slot="tier-1"), 0.0)
    assert epoch(a_world, 1).result.seen == 30
    a_world.carry_out(Blend(("tier-1",), (1.0,), slot=GLOBAL), 0.0)
    assert epoch(a_world, 2, 1).result.seen == 40


def test_a_client_comes_back_with_what_has_come_meanwhile():
    a_world, made = world(
        (10**4,) * 5,
        {"presence": "on-off", "mean_on_s": 9.0, "mean_off_s": 9.0},
        clock="seconds",
        arrival="random",
        buffer=200,
    )
    samples, gone = {}, 0
    for _ in range(60):
        event = a_world.next()
        if isinstance(event, Joined):
            assert event.samples == made.count(event.client, made.arrived(event.client, 0, event.at))
            assert event.samples >= samples.get(event.client, 0)
            gone += event.samples > samples.get(event.client, 200)
            samples[event.client] = event.samples
        else:
            assert isinstance(event, (Left, Started))
    assert gone > 5
    assert max(samples.values()) == 200


def test_a_client_drops_out_within_a_task_of_what_it_holds():
    a_world, _ = world((10**5,), {"dropout": 0.999})
    begin(a_world)
    event = epoch(a_world, 1)
    assert isinstance(event, Failed)
    assert event.at < 2 + 30 * 0.1


# What an update tells of its work, on static data too


def arrived(work, behaviour=None, samples=50):
    settings = Explicit.Settings((0.1,), (8.0,), (8.0,), Behaviour(**behaviour or {}))
    model = ModelProfile.even(10, 1_000_000).squared((0.5,))
    a_world = Driven(SimulatedWorld(Explicit.build(settings, 1, SEED), (samples,), model, TimingOnly()))
    begin(a_world)
    a_world.carry_out(Train(0, 1, 0, work), 0.0)
    return a_world.next()


@pytest.mark.parametrize(
    ("work", "trained"),
    [
        (Work(20, epochs=2), 100),
        (Work(20, steps=4), 70),
        (Work(20, steps=9, stop_at=5.5), 40),
        (Work(20, steps=1, stop_at=2.0, stop_in="layer"), 20),  # half a batch
        (Work(20, steps=9, stop_at=4.0, stop_in="layer"), 40),
        (Work(200, steps=3), 150),
    ],
)
def test_trained_counts_samples_that_come_again_and_stopped_batches_whole(work, trained):
    event = arrived(work)
    assert event.result.trained == trained
    assert event.result.samples == min(trained, 50)
    assert event.result.seen is None


@pytest.mark.parametrize(
    ("asked", "later_s", "more_bytes"), [("numbers", 3 * 1.0, 0), ("gradient", 3 * 1.0 + 1, 10**6)]
)
def test_estimates_take_three_passes_over_the_last_batch_and_a_gradient_its_way(
    asked, later_s, more_bytes
):
    plain = arrived(Work(20, epochs=1, depth=4), {"latency_s": 0.5})  # the last batch has ten samples
    event = arrived(Work(20, epochs=1, depth=4, estimate=asked), {"latency_s": 0.5})
    assert event.at == pytest.approx(plain.at + later_s)
    assert event.up_bytes == plain.up_bytes + more_bytes
    assert event.rates == plain.rates


def test_a_thinner_model_is_estimated_and_sent_as_such():
    plain, event = (arrived(Work(50, steps=1, width=0.5, estimate=e)) for e in (None, "gradient"))
    assert event.at - plain.at == pytest.approx(3 * 5.0 / 4 + 1 / 4)
    assert event.up_bytes == 2 * plain.up_bytes


@pytest.mark.parametrize("asked", ["numbers", "gradient"])
def test_a_fleet_can_make_estimates_free(asked):
    free = {"free_estimates": True}
    plain, event = (arrived(Work(20, epochs=1, estimate=e), free) for e in (None, asked))
    assert (event.at, event.up_bytes) == (plain.at, plain.up_bytes)


# Training


def model():
    return nn.Linear(4, 3)


def toy(samples=90):
    draw = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, 4, generator=draw)
    return Task(model, (inputs, torch.arange(samples) % 3), (inputs[:30], torch.arange(30) % 3))


def trainer_of(task, **stream):
    settings = StreamSettings(**{"arrival": "smooth", "initial": 5} | stream)
    division = PartitionSettings("iid", min_samples=1)
    config = Config(clients=3, seed=SEED, partition=division, stream=settings)
    divided, _, arrivals = divide(task, config)
    return Trainer(divided, TrainSettings(), SEED, stream=arrivals)


class Spy(nn.Linear):
    """Notes what it is trained on."""

    seen: ClassVar[list[torch.Tensor]] = []

    def forward(self, x):
        if torch.is_grad_enabled() and self.training:
            Spy.seen.append(x.detach().clone())
        return super().forward(x)


def test_batches_are_drawn_from_what_the_client_holds():
    data = toy()
    task = Task(lambda: Spy(4, 3), data.train, data.test)
    trainer = trainer_of(task, buffer=8, keep="reservoir")
    rows, order = trainer.task.train[0], trainer.task.clients[1]
    for seen in (3, 8, 25):
        Spy.seen = []
        trainer.run(make_job(1, seen, 4, 0, 1, 4, seen=seen), trainer.initial())
        held = order[trainer.stream.held(1, seen)]
        assert len(held) == min(seen, 8)
        used = torch.cat(Spy.seen)
        places = [int((rows == one).all(1).nonzero()) for one in used]
        assert set(places) == set(held.tolist())


def test_a_continuous_stream_orders_what_the_partition_gave_out():
    trainer = trainer_of(toy(), content="continuous")
    labels = [trainer.task.train[1][order].tolist() for order in trainer.task.clients]
    for own in labels:
        assert np.count_nonzero(np.diff(own)) == 2
    assert len({own[0] for own in labels}) == 1
    assert sorted(np.concatenate(trainer.task.clients)) == list(range(90))


def test_static_data_stays_in_the_order_it_has():
    plain = trainer_of(toy(), arrival="none")
    assert plain.stream is None
    assert all((np.diff(share) > 0).all() for share in plain.task.clients)


def test_an_order_that_the_task_brings_is_kept():
    shares = [np.arange(start, 90, 3)[::-1] for start in range(3)]
    data = toy()
    own = Task(model, data.train, data.test, shares, ordered=True)
    kept = trainer_of(own).task.clients
    assert all(np.array_equal(one, two) for one, two in zip(kept, shares, strict=True))


def test_another_process_and_a_trainer_that_did_other_jobs_give_the_same_bits():
    one, two = (trainer_of(toy(), buffer=9, keep=keep) for keep in ("reservoir", "reservoir"))
    copy = pickle.loads(pickle.dumps(two))
    job = make_job(2, 7, 5, 0, 1, 4, seen=27)
    for other in (12, 30, 3):
        one.run(make_job(2, other, 2, 0, 1, 4, seen=other), one.initial())
    updates = [trainer.run(job, trainer.initial()) for trainer in (one, two, copy)]
    assert all(torch.equal(update.params, updates[0].params) for update in updates)


def test_a_trainer_of_static_data_refuses_a_job_on_a_stream():
    trainer = trainer_of(toy(), arrival="none")
    with pytest.raises(ConfigError, match="does not arrive over time; give it the run's stream"):
        trainer.run(make_job(0, 1, 1, 0, 1, 4, seen=3), trainer.initial())


# Whole runs

STREAM = {"arrival": "smooth", "initial": 20, "amount": 15, "buffer": 50}


def updates_of(result):
    return [message for message in result.journal if isinstance(message, Arrived)]


@pytest.mark.parametrize("policy", plugins.names("policies"))
def test_every_policy_runs_on_data_that_arrives(small, policy):
    small |= {
        "policy": policy,
        "stream": STREAM,
        "stop": {"rounds": 40 if policy in ("fedasync", "fedcompass") else 8},
    }
    samples = 150
    if policy in ("dynamite", "dynamic_tau"):  # which measure what they plan with
        samples = 60
        small |= {"partition": {"min_samples": samples}}
    else:
        small |= {"task": {"kind": "timing", "samples": samples, "layers": 4}}
    events = updates_of(fedpace.simulate(small))
    assert all(event.result.samples <= min(event.result.seen, 50) for event in events)
    assert all(
        min(event.result.seen, samples) == min(20 + 15 * event.version, samples) for event in events
    )
    assert min(event.result.seen for event in events) == 20
    assert max(event.result.seen for event in events) > 50


@pytest.mark.parametrize("policy", ["sync", "fedat", "heterofl", "fedbuff"])
def test_epochs_go_over_what_is_held_and_updates_weigh_what_has_come(small, policy):
    small |= {
        "policy": policy,
        "task": {"kind": "timing", "samples": 150},
        "stream": STREAM | {"arrival": "random"},
        "train": {"epochs": 2},
        "stop": {"rounds": 9},
    }
    result = fedpace.simulate(small)
    events = {event.task: event for event in updates_of(result)}
    assert max(event.result.seen for event in events.values()) > 50
    assert all(event.result.trained == 2 * min(event.result.seen, 50) for event in events.values())
    if policy == "fedbuff":  # counts all alike
        return
    for message in result.journal:
        if isinstance(message, Aggregate):
            seen = np.array([events[task].result.seen for task in message.tasks])
            weights = np.array(message.weights)
            assert np.allclose(weights / weights.sum(), seen / seen.sum())


@pytest.mark.parametrize(
    ("policy", "stream"),
    [
        ("sync", STREAM | {"content": "continuous"}),
        ("fedbuff", STREAM | {"arrival": "random", "clock": "seconds", "every": 30, "keep": "random"}),
    ],
)
def test_a_run_on_a_stream_resumes_as_if_nothing_had_happened(tmp_path, small, policy, stream):
    small |= {"policy": policy, "stream": stream, "evaluate": {"every_rounds": 6}}
    fedpace.simulate(small, out=tmp_path / "whole")
    out = tmp_path / "stopped"
    for events in (14, 27):
        with pytest.raises(Stop):
            fedpace.simulate(
                small, out=out, resume=True, snapshot_every_s=0.0, watches=(stopping_after(events),)
            )
    fedpace.simulate(small, out=out, resume=True)
    assert_same(tmp_path / "whole", out)


def test_a_stream_of_the_config_is_checked_where_it_stands(small):
    with pytest.raises(ConfigError, match=r"\[stream\] initial is 0, but a client cannot"):
        fedpace.simulate(small | {"stream": {"arrival": "smooth", "initial": 0}})


def test_a_buffer_that_forgets_and_one_that_does_not_learn_different_things(small):
    small |= {"policy": "sync", "evaluate": {"every_rounds": 9}, "stop": {"rounds": 9}}
    small["task"] = {"kind": "fashion-mnist", "model": "mlp"}
    stream = {"arrival": "smooth", "amount": 100, "buffer": 100, "content": "continuous"}
    small["partition"] = {"kind": "iid"}
    best = {
        keep: fedpace.simulate(small | {"stream": stream | {"keep": keep}}).accuracy[-1][1]
        for keep in ("reservoir", "fifo")
    }
    assert best["reservoir"] > best["fifo"] + 0.1
