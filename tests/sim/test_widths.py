"""Tasks with a share of every layer's channels: what they move, take and report."""

import pytest

from fedpace.core.commands import Probe, Train, Work
from fedpace.core.errors import PolicyError
from fedpace.core.events import Arrived, Failed, Joined, Started
from fedpace.core.model import ModelProfile, Width
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.explicit import Explicit
from fedpace.report.tally import Tally
from fedpace.sim.learner import TimingOnly
from fedpace.sim.world import SimulatedWorld
from tests.sim.driven import Driven

LAYERS = ModelProfile.even(10, 1_000_000, forward_share=0.5).layers
MODEL = ModelProfile(LAYERS, (Width(0.5, 300_000, 0.4), Width(1.0, 1_000_000, 1.0)))


def world(**behaviour):
    """A second each way for the whole model, ten for an epoch of it."""
    fleet = Explicit.build(Explicit.Settings((0.1,), (8.0,), (8.0,), Behaviour(**behaviour)), 1, seed=2)
    made = Driven(SimulatedWorld(fleet, (100,), MODEL, TimingOnly()))
    while not isinstance(made.next(), Started):
        pass
    return made


def outcome(width, task=1, **behaviour):
    a_world = world(**behaviour)
    a_world.carry_out(Train(0, task, 0, Work(20, epochs=1, width=width)), 0.0)
    return a_world.next()


def test_a_thin_task_moves_and_trains_the_thin_model_and_reports_the_whole_one():
    event = outcome(0.5, latency_s=0.25)
    assert isinstance(event, Arrived)
    assert event.at == pytest.approx(0.25 + 0.3 + 10 * 0.4 + 0.25 + 0.3)
    assert (event.result.width, event.result.depth, event.up_bytes) == (0.5, 10, 300_000)
    assert (event.result.steps, event.result.samples, event.result.last_depth) == (5, 100, None)
    assert event.rates == outcome(None, latency_s=0.25).rates


def test_a_width_of_one_takes_the_time_of_the_whole_model():
    assert outcome(1.0).at == outcome(None).at
    assert (outcome(1.0).result.width, outcome(None).result.width) == (1.0, None)


def test_where_a_download_is_free_a_thin_one_is_too():
    assert outcome(0.5, latency_s=0.25, free_download=True).at == pytest.approx(4 + 0.25 + 0.3)
    assert outcome(0.5, free_links=True).at == pytest.approx(4.0)


def test_a_stop_time_leaves_a_thin_task_more_batches():
    a_world = world()
    a_world.carry_out(Train(0, 1, 0, Work(20, epochs=1, width=0.5, stop_at=0.3 + 2.5)), 0.0)
    event = a_world.next()
    assert (event.result.steps, event.result.cut) == (3, True)  # of 0.8 s each
    assert event.at == pytest.approx(0.3 + 2.4 + 0.3)


def test_varying_layers_of_a_thin_task_are_those_of_the_whole_one_scaled():
    whole, thin = (outcome(width, layer_times="exponential").at for width in (None, 0.5))
    assert thin - 0.6 == pytest.approx(0.4 * (whole - 2))
    assert whole != outcome(None).at


def test_a_thin_task_drops_out_within_its_own_time():
    event = outcome(0.5, dropout=0.999)
    whole = outcome(None, dropout=0.999)
    assert isinstance(event, Failed)
    assert event.at == pytest.approx(whole.at / 12 * 4.6)


def test_a_width_of_unknown_cost_is_refused():
    with pytest.raises(PolicyError, match=r"width 0.25 is asked for, but known are \[0.5, 1.0\]"):
        outcome(0.25)


def test_what_is_sent_out_is_counted_by_width():
    tally = Tally()
    thin, whole = Work(20, epochs=1, width=0.5), Work(20, epochs=1)
    for message in (
        *(Joined(0.0, client, 100) for client in range(4)),
        Train(0, 1, 0, thin),
        Train(1, 2, 0, thin),
        Train(2, 3, 0, whole),
        Probe(3, 4, 0, 20),
        Train(3, 4, 0, whole),
    ):
        tally.write(message)
    assert tally.down_bytes(MODEL) == 2 * 300_000 + 2 * 1_000_000
