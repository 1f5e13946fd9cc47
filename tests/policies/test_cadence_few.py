"""Cadence with few clients, of whom one is far faster than the others."""

import pytest

from fedpace.core.commands import SetTimer
from fedpace.core.events import Rates, Timer
from fedpace.policies.cadence import BEAT, MEET, Cadence
from tests.policies.conftest import of
from tests.policies.test_cadence import beat, works


def uneven(stage, **settings):
    """One client does a batch in 10 ms, four in a second; the second fastest's time is a beat."""
    on = stage(Cadence, clients=5, **{"k": 2, "batches": 1} | settings)
    commands = []
    for client, batch_s in enumerate([0.01, 1.0, 1.0, 1.0, 1.0]):
        commands = on.profile(0.0, client, Rates(batch_s, 10, 0.0, 0.0, 0.0))
    return on, commands


def beat_at(commands):
    return next(one.at for one in of(SetTimer, commands) if one.name == BEAT)


def test_a_beat_is_no_longer_than_all_need_for_two_usual_updates_each(stage):
    """In t s they do t / 0.01 + 4 t of ten; the fastest does 9 of them, where it would do 100."""
    _, commands = uneven(stage)
    assert beat_at(commands) == pytest.approx(10 / 104)
    assert works(commands)[0].steps == 9


def test_slow_clients_are_in_beats_that_are_shorter_by_smaller_parts(stage):
    on, _ = uneven(stage)
    on.arrive(0.09, 1, rates=Rates(1.0, 10, 0.0, 0.0, 0.0), steps=1)
    work = works(beat(on))[1]
    assert (work.batch_size, work.steps) == (1, 1)  # a sixteenth of 20 samples, in 62 ms


@pytest.mark.parametrize(("few", "beat_s"), [(0, 1.0), (4, 1.0), (5, 10 / 104)])
def test_beats_among_more_clients_are_as_long_as_the_kth_needs(stage, few, beat_s):
    _, commands = uneven(stage, few=few)
    assert beat_at(commands) == pytest.approx(beat_s)


@pytest.mark.parametrize("batches", [0.2, 3.0])
def test_few_clients_whose_transfers_take_time_have_beats_as_others_do(stage, batches):
    """With shorter ones all but the fastest would mostly transfer; the beat is the second's time."""
    on = stage(Cadence, clients=3, k=2, batches=1)
    commands = []
    for client, batch_s in enumerate([0.01, 1.0, 1.0]):
        commands = on.profile(0.0, client, Rates(batch_s, 10, 0.0, batches * batch_s, 0.0))
    assert beat_at(commands) == pytest.approx(1.0 + batches)
    assert works(commands)[0].batch_size == 20


def test_a_beat_is_not_so_short_that_a_client_on_time_would_miss_it(stage):
    """In 20.2 ms all would do two updates each, but a sample of the second's alone takes 50 ms."""
    on = stage(Cadence, clients=2, k=2, batches=1)
    on.profile(0.0, 0, Rates(0.01, 10, 0.0, 0.0, 0.0))
    commands = on.profile(0.0, 1, Rates(1.0, 10, 0.0, 0.0, 0.0))
    assert beat_at(commands) == pytest.approx(1 / 20)


def test_slow_clients_do_a_64th_of_a_batch_at_least(stage):
    """In 4 ms both would do two updates each, but a 64th of the second's batch takes 1 / 64 s."""
    on = stage(Cadence, clients=2, k=2, batches=1, batch_size=128)
    on.profile(0.0, 0, Rates(0.001, 2, 0.0, 0.0, 0.0))
    commands = on.profile(0.0, 1, Rates(1.0, 2, 0.0, 0.0, 0.0))
    assert beat_at(commands) == pytest.approx(1 / 64)
    on.arrive(0.015, 1, rates=Rates(1.0, 2, 0.0, 0.0, 0.0), steps=1)
    work = works(beat(on))[1]
    assert (work.batch_size, work.steps) == (2, 1)


@pytest.mark.parametrize(("most", "beat_s"), [(24, 3.2 / 24), (4, 3.2 / 4), (2, 12 / (104 + 1 / 64))])
def test_a_beat_is_not_so_short_that_a_client_would_miss_all_that_it_may_take(stage, most, beat_s):
    """A sample of the last one's takes 3.2 s: it makes the fourth beat of a second, not the second."""
    on = stage(Cadence, clients=6, k=2, batches=1, most=most)
    commands = []
    for client, batch_s in enumerate([0.01, 1.0, 1.0, 1.0, 1.0, 64.0]):
        commands = on.profile(0.0, client, Rates(batch_s, 10, 0.0, 0.0, 0.0))
    assert beat_at(commands) == pytest.approx(beat_s)


def test_many_clients_of_whom_few_have_answered_have_beats_as_many_have(stage):
    on = stage(Cadence, clients=30, k=2, batches=1)
    commands = []
    for client, batch_s in enumerate([0.01, 1.0]):
        commands = on.profile(0.0, client, Rates(batch_s, 10, 0.0, 0.0, 0.0))
    (meet,) = of(SetTimer, commands)
    assert beat_at(on.tell(Timer(meet.at, MEET))) == pytest.approx(1.0)


def test_no_halving_stays_none(stage):
    """Nor are beats cut down among few clients: the slow ones could not follow with smaller parts."""
    on, commands = uneven(stage, halvings=0)
    assert beat_at(commands) == pytest.approx(1.0)
    on.arrive(0.99, 1, rates=Rates(1.0, 10, 0.0, 0.0, 0.0), steps=1)
    work = works(beat(on))[1]
    assert (work.batch_size, work.steps) == (20, 1)
