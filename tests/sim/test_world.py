from dataclasses import replace

import numpy as np
import pytest

from fedpace.core.commands import Cancel, CancelTimer, Probe, SetTimer, Train, Work
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Joined, Left, Profiled, Started, Timer
from fedpace.core.model import ModelProfile
from fedpace.core.run import Tick
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit
from fedpace.fleet.fleet import TaskStarts
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld
from tests.sim.driven import Driven

MODEL = ModelProfile.even(10, 1_000_000, forward_share=0.5)


def world(compute_s=(0.1,), samples=(100,), **behaviour):
    """Links of 8 Mbit/s: the model takes a second each way."""
    settings = Explicit.Settings(compute_s, (8.0,), (8.0,), Behaviour(**behaviour))
    return Driven(
        SimulatedWorld(Explicit.build(settings, len(samples), seed=0), samples, MODEL, TimingOnly())
    )


def begin(a_world):
    """Skip to after the start."""
    while not isinstance(a_world.next(), Started):
        pass
    return a_world


def train(task=1, client=0, **work):
    return Train(client, task, 0, Work(20, **(work or {"epochs": 1})))


def test_everybody_joins_before_the_start():
    a_world = world(samples=(5, 6), compute_s=(0.1, 0.2))
    events = [a_world.next() for _ in range(3)]
    assert events == [Joined(0.0, 0, 5), Joined(0.0, 1, 6), Started(0.0)]
    assert a_world.next() is None


def test_a_task_downloads_computes_and_uploads():
    a_world = begin(world())
    a_world.carry_out(train(), 5.0)
    event = a_world.next()
    assert isinstance(event, Arrived)
    assert event.at == pytest.approx(5 + 1 + 10 + 1)
    assert (event.result.depth, event.result.steps, event.result.samples, event.up_bytes) == (
        10,
        5,
        100,
        1_000_000,
    )


def test_a_shallow_task_computes_its_share_and_uploads_its_layers():
    a_world = begin(world())
    a_world.carry_out(train(epochs=1, depth=2), 0.0)
    event = a_world.next()
    assert event.at == pytest.approx(1 + 10 * 0.6 + 0.2)
    assert event.up_bytes == 200_000


def slow_start(first_batch, start_s):
    """One client whose tasks begin with a delay, otherwise as in `world`."""
    settings = Explicit.Settings((0.1,), (8.0,), (8.0,), Behaviour())
    starts = TaskStarts(np.array([first_batch]), np.array([start_s]))
    fleet = replace(Explicit.build(settings, 1, seed=0), starts=starts)
    return begin(Driven(SimulatedWorld(fleet, (100,), MODEL, TimingOnly())))


@pytest.mark.parametrize("stop_at", [None, 1000.0])
def test_a_first_batch_that_takes_longer_and_a_start_delay_the_whole_task(stop_at):
    a_world = slow_start(first_batch=1.5, start_s=0.25)
    a_world.carry_out(train(epochs=1, stop_at=stop_at), 0.0)
    event = a_world.next()
    assert event.at == pytest.approx(1 + 0.25 + 1.0 + 10 + 1)
    assert event.rates.batch_s == pytest.approx(2.0)  # what most of its batches take


def test_a_probe_measures_the_first_batch_and_not_the_start():
    a_world = slow_start(first_batch=1.5, start_s=0.25)
    a_world.carry_out(Probe(0, 1, 0, 20), 0.0)
    profiled = a_world.next()
    assert profiled.at == pytest.approx(1 + 0.25 + 3.0)
    assert profiled.rates.batch_s == pytest.approx(3.0)
    a_world.carry_out(train(epochs=1), profiled.at)
    assert a_world.next().at == pytest.approx(1 + 0.25 + 1.0 + 10 + 1)


def test_a_probe_answers_after_one_batch_and_its_work_goes_on_from_there():
    a_world = begin(world())
    a_world.carry_out(Probe(0, 1, 0, 20), 0.0)
    profiled = a_world.next()
    assert isinstance(profiled, Profiled)
    assert profiled.at == pytest.approx(3.0)
    assert profiled.rates.compute_s == pytest.approx(10.0)
    a_world.carry_out(train(epochs=1, depth=2), 4.0)
    arrived = a_world.next()
    assert (arrived.result.full_steps, arrived.result.steps) == (
        2,
        5,
    )  # the second batch is finished at 5.0
    assert arrived.at == pytest.approx(5 + 6 * 0.6 + 0.2)


def test_on_the_papers_clock_download_and_probe_take_no_time():
    a_world = begin(world(free_download=True, free_probe=True))
    a_world.carry_out(Probe(0, 1, 0, 20, go_on=False), 7.0)
    profiled = a_world.next()
    assert profiled.at == 7.0
    assert profiled.rates.down_s == 0.0
    a_world.carry_out(train(), 7.0)
    arrived = a_world.next()
    assert arrived.at == pytest.approx(7 + 10 + 1)
    assert (arrived.result.full_steps, arrived.result.steps) == (
        0,
        5,
    )  # what took no time has trained nothing


def test_nothing_comes_of_a_cancelled_task():
    a_world = begin(world())
    a_world.carry_out(train(), 0.0)
    a_world.carry_out(Cancel(0, 1, "x"), 1.0)
    assert a_world.next() is None


def test_arrivals_come_before_a_timer_of_the_same_time():
    a_world = begin(world(compute_s=(0.125,), samples=(80,)))  # 10 s, no rounding
    a_world.carry_out(SetTimer("end", 12.0), 0.0)
    a_world.carry_out(train(), 0.0)
    events = [a_world.next(), a_world.next()]
    assert [type(event) for event in events] == [Arrived, Timer]
    assert events[0].at == events[1].at == 12.0


def test_timers_can_be_moved_and_cancelled():
    a_world = begin(world())
    for command in (SetTimer("a", 5.0), SetTimer("a", 3.0), SetTimer("b", 4.0), CancelTimer("b")):
        a_world.carry_out(command, 0.0)
    assert a_world.next() == Timer(3.0, "a")
    assert a_world.next() is None


def test_ticks_come_after_everything_else_of_their_time():
    a_world = begin(world())
    a_world.tick_at(3.0)
    for command in (SetTimer("a", 3.0), SetTimer("b", 9.0)):
        a_world.carry_out(command, 0.0)
    assert [type(a_world.next()) for _ in range(3)] == [Timer, Tick, Timer]


def test_a_client_that_drops_out_fails_in_the_middle_of_its_task():
    a_world = begin(world(dropout=0.999))
    a_world.carry_out(train(), 0.0)
    event = a_world.next()
    assert isinstance(event, Failed)
    assert 0 < event.at < 12
    assert event.reason == "the client dropped out"


def test_a_probed_client_may_drop_out_before_it_has_work():
    a_world = begin(world(dropout=0.999, samples=(100,) * 30, compute_s=(0.1,)))
    for client in range(30):
        a_world.carry_out(Probe(client, client + 1, 0, 20), 0.0)
    events = [a_world.next() for _ in range(30)]
    failed = [event.at for event in events if isinstance(event, Failed)]
    assert len(failed) > 5
    assert all(0 < at < 12 for at in failed)


def test_jitter_is_drawn_again_after_the_probe():
    a_world = begin(world(jitter=0.3))
    a_world.carry_out(Probe(0, 1, 0, 20), 0.0)
    profiled = a_world.next()
    a_world.carry_out(train(), profiled.at)
    arrived = a_world.next()
    assert arrived.rates.batch_s != profiled.rates.batch_s
    assert arrived.at == pytest.approx(profiled.at + 4 * arrived.rates.batch_s + 1)


def test_messages_of_control_take_the_latency():
    a_world = begin(world(latency_s=0.5))
    a_world.carry_out(Probe(0, 1, 0, 20), 0.0)
    profiled = a_world.next()
    assert profiled.at == pytest.approx(1.5 + 2 + 0.5)
    a_world.carry_out(train(steps=1), 4.0)  # reaches the client at 4.5, in its second batch
    assert a_world.next().at == pytest.approx(4.5 + 1.5)


def test_a_device_that_would_take_for_ever_is_named():
    a_world = begin(world(compute_s=(1e308,)))
    with pytest.raises(ConfigError, match="client 0 would take for ever"):
        a_world.carry_out(train(), 0.0)


def test_with_nothing_but_ticks_left_nothing_ever_happens():
    a_world = begin(world())
    a_world.tick_at(3.0)
    assert a_world.next() is None


def test_a_client_that_goes_offline_leaves_and_its_task_fails():
    a_world = world(presence="on-off", mean_on_s=5.0, mean_off_s=5.0, samples=(100,) * 20)
    online, seen = set(), []
    tasks = 0
    for _ in range(3000):
        event = a_world.next()
        seen.append(event)
        if isinstance(event, Joined):
            assert event.client not in online
            online.add(event.client)
            tasks += 1
            a_world.carry_out(train(task=tasks, client=event.client), event.at)
        elif isinstance(event, Left):
            online.remove(event.client)
        elif isinstance(event, Failed):
            assert event.client not in online
            assert isinstance(seen[-2], (Left, Failed))
        elif isinstance(event, Arrived):
            assert event.client in online
    kinds = {type(event) for event in seen}
    assert kinds == {Joined, Left, Failed, Arrived, Started}


def test_jitter_changes_tasks_and_rates_tell_the_truth():
    a_world = begin(world(jitter=0.3))
    times, now = [], 0.0
    for task in range(1, 4):
        a_world.carry_out(train(task=task), now)
        event = a_world.next()
        times.append(event.at - now)
        assert event.rates.compute_s + 2 == pytest.approx(times[-1])
        now = event.at
    assert len(set(times)) == 3


def test_devices_and_data_must_be_for_the_same_clients():
    settings = Explicit.Settings((0.1,), (8.0,), (8.0,))
    fleet = Explicit.build(settings, 3, seed=0)
    with pytest.raises(ConfigError, match="3 devices, but data for 2 clients"):
        SimulatedWorld(fleet, (1, 2), MODEL, TimingOnly())
