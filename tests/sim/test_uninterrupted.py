from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.commands import Cancel, Train, Work
from fedpace.core.events import Arrived, Failed, Joined, Left, Started
from fedpace.core.model import ModelProfile
from fedpace.data.streams import StreamSettings, make_stream
from fedpace.fleet.behaviour import Behaviour
from fedpace.fleet.distribution import Distribution, DistributionSettings
from fedpace.fleet.fleet import Pace
from fedpace.sim import timeline, uninterrupted
from fedpace.sim.learner import TimingOnly
from fedpace.sim.uninterrupted import UninterruptedTasks
from fedpace.sim.world import SimulatedWorld
from tests.sim.driven import Driven

MODEL = ModelProfile.even(7, 1_000_003, forward_share=0.3)
speeds = st.floats(1e-6, 1e6)
paces = st.builds(Pace, speeds, speeds, speeds, st.just(0.0) | speeds)
works = st.builds(
    lambda size, length, depth: Work(size, **length, depth=depth),
    st.integers(1, 300),
    st.builds(dict, epochs=st.integers(1, 5)) | st.builds(dict, steps=st.integers(1, 99)),
    st.none() | st.integers(1, 7),
)


@given(works, st.integers(1, 300), paces, st.floats(0, 1e9))
def test_it_is_what_carrying_out_gives_to_the_bit(work, samples, pace, at):
    batches = timeline.batches_of(work.batch_size, samples)
    way = timeline.link(pace, MODEL.total_bytes, free_links=False, free_download=False)
    plain = timeline.carry_out(work, batches, pace, way, MODEL, 0, at + way.down_s)
    got = UninterruptedTasks(MODEL, lambda _: way).of(work, samples, pace)
    assert at + got.download_s + got.training_s + got.upload_s == plain.arrives_at
    assert got.result == plain.result
    assert got.rates == timeline.rates(batches, pace, way)
    assert not plain.result.cut


def test_what_is_kept_is_what_would_be_computed_and_no_more_than_there_is_room_for():
    def link(pace):
        return timeline.link(pace, MODEL.total_bytes, False, False)

    tasks = UninterruptedTasks(MODEL, link)
    for work in (Work(20, epochs=1), Work(20, epochs=2), Work(20, epochs=1)):
        for number in [*range(uninterrupted.MOST + 10)] * 2:
            pace = Pace(1.0 + number, 100.0, 50.0, 0.0)
            samples = 1 + number % 3
            expected = UninterruptedTasks(MODEL, link).of(work, samples, pace)
            assert tasks.of(work, samples, pace) == expected
        assert len(tasks._known) == uninterrupted.MOST


def tale(plainly, behaviour, stream, works):
    """All that happens to ten clients that are given work again and again, and cancelled at times."""
    samples = [10 + 7 * client for client in range(10)]
    fleet = Distribution.build(DistributionSettings(behaviour=behaviour), 10, seed=3)
    world = Driven(SimulatedWorld(fleet, samples, MODEL, TimingOnly(), make_stream(stream, samples, 3)))
    if plainly:
        world._steady = False  # as where layers take times of their own, which are steady nevertheless
    numbers, told, online = count(1), [], set()

    def give(client, at):
        number = next(numbers)
        world.carry_out(Train(client, number, 0, works[number % len(works)]), at)
        if number % 13 == 0:
            world.carry_out(Cancel(client, number, "enough"), at)
            give(client, at)

    while len(told) < 300:
        event = world.next()
        told.append(event)
        match event:
            case Started():
                for client in sorted(online):
                    give(client, event.at)
            case Arrived(client=client) | Failed(client=client):
                if client in online:
                    give(client, event.at)
            case Joined(client=client):
                online.add(client)
                if event.at:
                    give(client, event.at)
            case Left(client=client):
                online.remove(client)
    return told


@pytest.mark.parametrize(
    "behaviour",
    [
        Behaviour(),
        Behaviour(latency_s=0.3, free_download=True),
        Behaviour(free_links=True, dropout=0.3),
        Behaviour(jitter=0.2, drift=0.2, dropout=0.2, latency_s=0.1),
        Behaviour(presence="on-off", mean_on_s=300.0, mean_off_s=50.0, dropout=0.1),
    ],
    ids=repr,
)
@pytest.mark.parametrize(
    "stream", [StreamSettings(), StreamSettings("smooth", initial=5, clock="seconds")]
)
def test_a_world_that_knows_whole_tasks_goes_as_one_that_takes_every_step(behaviour, stream):
    works = [Work(20, epochs=1), Work(20, epochs=1), Work(8, steps=5, depth=2), Work(64, epochs=3)]
    assert tale(False, behaviour, stream, works) == tale(True, behaviour, stream, works)
