"""Batches layer by layer: stops inside a backward pass, and layers whose times vary."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedpace.core.commands import GLOBAL, Cancel, Probe, Train, Work
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Profiled, Started
from fedpace.core.model import LayerCost, ModelProfile
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit
from fedpace.fleet.fleet import Pace
from fedpace.sim import layerwise
from fedpace.sim.learner import TimingOnly
from fedpace.sim.timeline import Batches, Link
from fedpace.sim.world import SimulatedWorld
from tests.sim.driven import Driven

EVEN = ModelProfile.even(4, 400, forward_share=0.2)
"""A batch of 10 samples takes a second: 0.2 s forward, then 0.2 s a layer."""
UNEVEN = ModelProfile(
    (LayerCost("a", 300, 2.0, 5.0), LayerCost("b", 500, 1.0, 3.0), LayerCost("c", 200, 1.0, 8.0))
)
PACE = Pace(sample_s=0.1, down_bytes_s=100.0, up_bytes_s=50.0, latency_s=0.5)
WAY = Link(latency_s=0.5, down_s=4.5, up_s=8.5)
SHORT = Batches(10, 25)  # of 10, 10 and 5 samples


def noise(seed=0):
    return np.random.default_rng(seed)


def carry_out(work, batches=SHORT, model=EVEN, done=0, drawn=None):
    return layerwise.carry_out(work, batches, PACE, WAY, model, done, 100.0, drawn)


@pytest.mark.parametrize(
    ("stop_at", "steps", "depth", "last_depth", "samples"),
    [
        (100.4, 1, 1, 1, 10),
        (100.79, 1, 2, 2, 10),
        (100.8, 1, 3, 3, 10),
        (101.0, 1, 4, None, 10),
        (101.39, 1, 4, None, 10),
        (101.45, 2, 4, 1, 20),
        (102.05, 2, 4, None, 20),
        (102.35, 3, 4, 2, 25),  # the third batch is half as long
        (102.45, 3, 4, 3, 25),
    ],
)
def test_a_client_stopped_in_a_layer_sends_at_that_time_the_layers_that_got_a_step(
    stop_at, steps, depth, last_depth, samples
):
    found = carry_out(Work(10, epochs=1, stop_at=stop_at, stop_in="layer"))
    assert (found.result.steps, found.result.depth, found.result.last_depth) == (
        steps,
        depth,
        last_depth,
    )
    assert (found.result.samples, found.result.full_steps, found.result.cut) == (samples, 0, True)
    assert found.arrives_at == pytest.approx(stop_at + 0.5 + 2 * depth)


@pytest.mark.parametrize("stop_at", [102.5, 103.0])
def test_work_that_is_done_before_its_stop_time_is_sent_at_once(stop_at):
    found = carry_out(Work(10, epochs=1, stop_at=stop_at, stop_in="layer"))
    assert (found.result.steps, found.result.depth, found.result.last_depth, found.result.cut) == (
        3,
        4,
        None,
        False,
    )
    assert found.arrives_at == pytest.approx(102.5 + 8.5)


@pytest.mark.parametrize(("stop_at", "heard_at"), [(100.39, 100.89), (100.1, 100.6), (50.0, 100.5)])
def test_without_a_layer_there_is_nothing_to_send(stop_at, heard_at):
    found = carry_out(Work(10, epochs=1, stop_at=stop_at, stop_in="layer"))
    assert found.result.steps == 0
    assert found.arrives_at == pytest.approx(heard_at)


def test_a_stop_time_that_misses_the_end_of_a_layer_by_a_rounding_does_not_cut_it():
    for layers in range(1, 5):
        stop_at = 100 + 0.2 * (1 + layers) * (1 - 1e-12)
        assert carry_out(Work(10, epochs=1, stop_at=stop_at, stop_in="layer")).result.depth == layers


def test_batches_since_a_probe_count_where_the_next_one_is_stopped():
    found = carry_out(Work(10, epochs=1, stop_at=100.45, stop_in="layer"), done=1)
    assert (
        found.result.steps,
        found.result.full_steps,
        found.result.depth,
        found.result.last_depth,
    ) == (2, 1, 4, 1)
    found = carry_out(Work(10, epochs=1, stop_at=90.0, stop_in="layer"), done=1)
    assert (
        found.result.steps,
        found.result.full_steps,
        found.result.depth,
        found.result.last_depth,
    ) == (1, 1, 4, None)


def one_by_one(model, depth, sample_s, batches, total, drawn):
    """When each layer of each batch is done, one list a batch."""
    full = sum(layer.forward + layer.backward for layer in model.layers)
    clock, ends = 0.0, []
    for number in range(total):
        size = batches.samples_in(number + 1) - batches.samples_in(number)
        clock += sample_s * size * sum(layer.forward for layer in model.layers) / full
        ends.append([])
        for place, layer in enumerate(reversed(model.layers)):
            factor = 1.0 if drawn is None else drawn.standard_exponential()
            if place < depth:
                clock += factor * sample_s * size * layer.backward / full
                ends[-1].append(clock)
    return ends


@given(
    st.builds(Batches, st.integers(1, 12), st.integers(1, 40)),
    st.integers(1, 3),
    st.integers(1, 300),
    st.floats(0, 1.3),
    st.none() | st.integers(0, 10**6),
)
def test_batches_in_blocks_end_where_they_end_one_by_one(batches, depth, total, share, seed):
    def drawn():
        return None if seed is None else noise(seed)

    ends = one_by_one(UNEVEN, depth, 0.1, batches, total, drawn())
    stop_s = share * ends[-1][-1]
    assume(not any(math.isclose(end, stop_s) for batch in ends for end in batch))
    found = layerwise.reach(UNEVEN, depth, 0.1, batches, 0, total, stop_s, drawn())
    whole = sum(batch[-1] <= stop_s for batch in ends)
    assert found.batches == whole
    assert found.done_s == pytest.approx(ends[whole - 1][-1] if whole else 0.0)
    if whole < total:
        assert found.layers == sum(end <= stop_s for end in ends[whole])
        assert found.next_s == pytest.approx(ends[whole][-1])


@pytest.mark.parametrize("stop_s", [0.3, 17.0, 400.0, math.inf])
def test_how_many_batches_are_looked_at_in_one_go_changes_not_a_bit(monkeypatch, stop_s):
    found = set()
    for block in (1, 7, 128, 10_000):
        monkeypatch.setattr(layerwise, "BLOCK", block)
        found.add(layerwise.reach(UNEVEN, 3, 0.1, SHORT, 0, 700, stop_s, noise()))
    assert len(found) == 1


def test_a_shallow_task_takes_the_times_of_its_layers_in_the_full_one():
    factors = noise().standard_exponential((2, 3))
    means = np.array([8.0, 3.0, 5.0]) / 20  # of 10 samples, from the output
    for depth in (1, 2, 3):
        expected = 2 * 4 / 20 + (factors * means)[:, :depth].sum()
        found = layerwise.reach(UNEVEN, depth, 0.1, Batches(10, 20), 0, 2, math.inf, noise())
        assert found.done_s == pytest.approx(expected)


def test_exponential_layers_keep_the_mean_and_have_the_spread_of_their_number():
    rng, tasks, batches = noise(3), 3000, Batches(10, 30)
    spent = [layerwise.reach(EVEN, 4, 0.1, batches, 0, 3, math.inf, rng).done_s for _ in range(tasks)]
    sd = 0.2 * math.sqrt(3 * 4)
    assert abs(np.mean(spent) - 3.0) < 4 * sd / math.sqrt(tasks)
    # The variance of a sample variance: the fourth moment of a sum of n exponentials is 3 n^2 + 6 n.
    assert abs(np.var(spent) / sd**2 - 1) < 4 * math.sqrt((2 + 6 / 12) / tasks)


def ends(seed=0, count=3):
    """When batches of 10, 10 and 5 samples end, by the numbers of the generator."""
    layers = noise(seed).standard_exponential((count, 4)) * 0.2
    return np.cumsum((0.2 + layers.sum(axis=1)) * np.array([1.0, 1.0, 0.5])[:count])


def test_where_times_vary_a_stop_between_batches_throws_away_the_batch_it_falls_into():
    first, second, _ = ends()
    stop_at = 100 + (first + second) / 2
    found = carry_out(Work(10, epochs=1, stop_at=stop_at), drawn=noise())
    assert (found.result.steps, found.result.samples, found.result.cut, found.result.last_depth) == (
        1,
        10,
        True,
        None,
    )
    assert found.arrives_at == pytest.approx(stop_at + 8.5)


def test_where_times_vary_the_first_batch_is_finished_even_if_it_is_late():
    first = ends()[0]
    found = carry_out(Work(10, epochs=1, stop_at=100 + first / 2), drawn=noise())
    assert (found.result.steps, found.result.depth, found.result.cut) == (1, 4, True)
    assert found.arrives_at == pytest.approx(100 + first + 8.5)
    only = carry_out(Work(10, steps=1, stop_at=100.0), drawn=noise())
    assert (only.result.steps, only.result.cut) == (1, False)
    since_probe = carry_out(Work(10, epochs=1, stop_at=100 + first / 2), done=1, drawn=noise())
    assert (since_probe.result.steps, since_probe.result.cut) == (1, True)
    assert since_probe.arrives_at == pytest.approx(100 + first / 2 + 8.5)


def test_where_times_vary_work_without_a_stop_takes_the_sum_of_its_layers():
    found = carry_out(Work(10, epochs=1), drawn=noise())
    assert (found.result.steps, found.result.cut, found.arrives_at) == (
        3,
        False,
        pytest.approx(100 + ends()[-1] + 8.5),
    )


# In the world


class Heard(TimingOnly):
    def __init__(self):
        self.calls = []

    def opened(self, command):
        self.calls.append(("opened", command.task, command.slot))

    def expect(self, event, work):
        self.calls.append(("will arrive", event.task))

    def forget(self, task):
        self.calls.append(("forget", task))


def world(learner=None, samples=(100,), **behaviour):
    """A second each way for the model, two for a batch of 20."""
    fleet = Explicit.build(
        Explicit.Settings((0.1,), (8.0,), (8.0,), Behaviour(**behaviour)), len(samples), seed=4
    )
    model = ModelProfile.even(10, 1_000_000, forward_share=0.5)
    made = Driven(SimulatedWorld(fleet, samples, model, learner or TimingOnly()))
    while not isinstance(made.next(), Started):
        pass
    return made


def train(task=1, client=0, **work):
    return Train(client, task, 0, Work(20, **work))


def test_the_world_tells_how_deep_a_stopped_client_came():
    a_world = world()
    a_world.carry_out(train(steps=2, stop_at=2.35, stop_in="layer"), 0.0)
    event = a_world.next()
    assert isinstance(event, Arrived)
    assert (event.result.depth, event.result.steps, event.result.last_depth, event.result.cut) == (
        3,
        1,
        3,
        True,
    )
    assert (event.up_bytes, event.result.full_steps, event.result.samples) == (300_000, 0, 20)
    assert event.at == pytest.approx(2.35 + 0.3)


def test_work_that_comes_to_nothing_fails_and_the_learner_only_forgets_it():
    learner = Heard()
    a_world = world(learner, latency_s=0.25)
    a_world.carry_out(train(steps=2, stop_at=2.0, stop_in="layer"), 0.0)
    assert a_world.next() == Failed(2.25, 0, 1, "no layer was done in time")
    assert learner.calls == [("opened", 1, GLOBAL), ("forget", 1)]
    a_world.carry_out(train(task=2, steps=1), 3.0)
    assert isinstance(a_world.next(), Arrived)


def test_nothing_is_heard_of_a_cancelled_task_that_would_have_come_to_nothing():
    a_world = world()
    a_world.carry_out(train(steps=2, stop_at=1.5, stop_in="layer"), 0.0)
    a_world.carry_out(Cancel(0, 1, "x"), 1.0)
    assert a_world.next() is None


def test_varying_layers_are_the_same_in_every_world_and_others_in_every_task():
    def times():
        a_world, spent = world(samples=(100, 100), layer_times="exponential"), []
        for task in range(1, 7):
            a_world.carry_out(train(task=task, client=task % 2, epochs=1), 0.0)
        while (event := a_world.next()) is not None:
            spent.append((event.client, event.at))
        return spent

    assert times() == times()
    assert len(set(times())) == 6


def test_probes_and_rates_keep_the_expected_times():
    seen = []
    for layer_times in ("steady", "exponential"):
        a_world = world(layer_times=layer_times)
        a_world.carry_out(Probe(0, 1, 0, 20), 0.0)
        profiled = a_world.next()
        assert isinstance(profiled, Profiled)
        a_world.carry_out(train(epochs=1), 4.0)
        seen.append((profiled, a_world.next()))
    (steady_probe, steady), (probe, varied) = seen
    assert probe == steady_probe
    assert (varied.result.full_steps, varied.result.steps, varied.rates) == (2, 5, steady.rates)
    assert varied.at != steady.at


def test_a_device_that_would_take_for_ever_is_named_where_layers_vary_too():
    fleet = Explicit.build(
        Explicit.Settings((1e308,), (8.0,), (8.0,), Behaviour(layer_times="exponential")), 1, seed=0
    )
    a_world = Driven(SimulatedWorld(fleet, (100,), EVEN, TimingOnly()))
    while not isinstance(a_world.next(), Started):
        pass
    with pytest.raises(ConfigError, match="client 0 would take for ever"):
        a_world.carry_out(train(epochs=1), 0.0)
