"""Cadence: beats, who arrives on which, and what an update counts."""

import pytest

from fedpace.core.commands import GLOBAL, Aggregate, Blend, Cancel, Note, Probe, SetTimer, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Failed, Joined, Left, Rates, Timer
from fedpace.policies.cadence import BEAT, BEATS, MEET, Cadence, CadenceSettings

from .conftest import of

# Seconds for an epoch of ten batches and for an upload; a download takes none.
QUICK, MIDDLE, SLOW, SLOWEST = (4.0, 1.0), (8.0, 2.0), (21.0, 2.0), (90.0, 20.0)


def rates(compute_s, up_s, down_s=0.0, batches=10, latency_s=0.0):
    return Rates(compute_s / batches, batches, down_s, up_s, latency_s)


def begun(stage, speeds=(QUICK, MIDDLE, SLOW, SLOWEST), at=1.0, **settings):
    """All have told their speeds at one time."""
    all_data = {"k": 2, "most": 3, "batches": 0, "halvings": 0, "cut": "layers"}
    on = stage(Cadence, clients=len(speeds), **{**all_data, **settings})
    commands = []
    for client, speed in enumerate(speeds):
        commands = on.profile(at, client, rates(*speed))
    return on, commands


SPEEDS = QUICK, MIDDLE, SLOW, SLOWEST
NEAR = (4.4, 0.6), (8.8, 1.2), (21.0, 2.0), (90.0, 15.0)
"""As long for an epoch, with transfers that take less than two batches."""


def arrive(on, at, client, speed=None, steps=1):
    told = rates(*(speed or SPEEDS[client]))
    return on.arrive(at, client, rates=told, steps=steps)


def beat(on):
    """The next beat, when it is due."""
    return on.tell(Timer(on.session.books.timers[BEAT], BEAT))


def works(commands):
    return {one.client: one.work for one in of(Train, commands)}


def test_everybody_is_probed_first_and_trains_meanwhile(stage):
    on = stage(Cadence, k=2)
    assert sorted(one.client for one in of(Probe, on.first)) == [0, 1, 2, 3]
    assert all(one.go_on for one in of(Probe, on.first))


def test_a_worked_example(stage):
    """The second fastest needs 10 s: beats are at 10, 20 and 30 s.

    Batches take 0.4, 0.8, 2.1 and 9 s. By 10 s less its upload the quick client can do 22 of them, the
    middle one its 10; the slow one has its data done by 23 s, so that it arrives at 30 s, with 13
    batches; the slowest has 10 s of training till then, and trains a part.
    """
    _, commands = begun(stage)
    assert of(SetTimer, commands) == [SetTimer(BEAT, pytest.approx(10.0))]
    found = works(commands)
    assert [found[client].steps for client in range(3)] == [22, 10, 13]
    assert [found[client].depth for client in range(4)] == [None, None, None, 1]
    assert [found[client].stop_at for client in range(3)] == [
        pytest.approx(9),
        pytest.approx(8),
        pytest.approx(28),
    ]
    assert found[3].steps >= 1


def test_beats_are_as_long_as_a_batch_of_the_kth_fastest(stage):
    """With a batch each the four need 0.8, 2, 4.1 and 11 s: beats are at 2, 4, 6, ... and 12 s.

    By its beat, less its upload, the quick client can do 4 batches, the others one each.
    """
    speeds = (4.0, 0.4), (8.0, 1.2), (21.0, 2.0), (90.0, 2.0)
    _, commands = begun(stage, speeds, at=0.0, batches=1, most=24)
    assert of(SetTimer, commands) == [SetTimer(BEAT, pytest.approx(2.0))]
    found = works(commands)
    assert [found[client].steps for client in range(4)] == [4, 1, 1, 1]
    ends = [found[client].stop_at for client in range(4)]
    assert ends == pytest.approx([1.6, 0.8, 4.0, 10.0])
    assert {work.depth for work in found.values()} == {None}


LIKE = [(10.0 + number / 10, 0.0) for number in range(4)]


def test_like_clients_get_a_beat_that_all_of_them_fill(stage):
    """Two batches take 2 to 2.06 s: by the fastest's beat three of four would do half of them."""
    first = begun(stage, LIKE, at=0.0, k=1, batches=2, halvings=3)[1]
    assert of(SetTimer, first) == [SetTimer(BEAT, pytest.approx(2.06))]
    shortest = begun(stage, LIKE, at=0.0, k=1, batches=2, halvings=3, longest=1.0)[1]
    assert of(SetTimer, shortest) == [SetTimer(BEAT, pytest.approx(2.0))]


def test_slow_clients_do_as_many_batches_of_fewer_samples(stage):
    """Beats are 3.6 s: of 4.2 s for two batches the slow one has 1.6, enough for a quarter of each."""
    on, commands = begun(stage, batches=2, most=24, halvings=3, cut="batches")
    assert of(SetTimer, commands) == [SetTimer(BEAT, pytest.approx(3.6))]
    arrive(on, 3.5, 2)
    work = works(beat(on))[2]
    assert (work.steps, work.batch_size) == (2, 5)


def test_beats_are_no_shorter_than_the_kth_fastests():
    with pytest.raises(ConfigError, match="set longest to 1 or more"):
        CadenceSettings(longest=0.5)


def test_no_update_needs_more_batches_than_its_client_has(stage):
    _, few = begun(stage, at=0.0, batches=99)
    _, all_data = begun(stage, at=0.0)
    assert works(few) == works(all_data)


def halved(stage, at=0.0, **settings):
    """With a batch each: beats are at 2.8, 5.6 s and so on; the slowest needs 9 s to send alone."""
    speeds = (4.0, 0.4), MIDDLE, SLOW, (90.0, 9.0)
    usual = {"batches": 1, "most": 24, "halvings": 3, "cut": "batches"}
    return begun(stage, speeds, at, **usual | settings)


def test_slow_clients_get_a_part_of_a_batch_so_as_to_be_back_on_the_next_beat(stage):
    """Of 2.8 s the slow client needs 2 to send; 0.8 s are enough for a quarter of its 2.1 s a batch."""
    on, _ = halved(stage)
    arrive(on, 2.7, 2)
    work = works(beat(on))[2]
    assert (work.batch_size, work.steps) == (5, 1)
    assert work.stop_at == pytest.approx(5.6 - 2.0)


def test_where_links_are_slow_clients_train_for_about_as_long_as_they_transfer(stage):
    """Beats are 0.6 s apart. Uploads take 2.9 s, in which 29 batches could be trained.

    On the beat at 3 s there is time for one batch; by that at 4.2 s all ten of its data are done. The
    quick client, whose upload takes 0.5 s, has one done on the first beat, and 7 on the second.
    """
    _, commands = begun(stage, [(1.0, 0.5), *[(1.0, 2.9)] * 3], at=0.0, k=1, batches=1, most=24)
    found = works(commands)
    assert [found[client].steps for client in range(4)] == [7, 13, 13, 13]
    assert found[1].stop_at == pytest.approx(4.2 - 2.9)


def test_where_links_are_quick_one_of_a_slow_link_is_back_as_soon_as_it_can(stage):
    _, commands = begun(stage, [*[(1.0, 0.1)] * 3, (1.0, 2.9)], at=0.0, k=1, batches=1, most=24)
    assert works(commands)[3].steps == 1  # on the 15th beat of 0.2 s


def with_one_slow_link(batches):
    """Uploads of three clients take so many batches of 0.1 s, that of the fourth nine."""
    return [*[(1.0, batches / 10)] * 3, (1.0, 0.9)]


@pytest.mark.parametrize(("batches", "steps"), [(1.9, 2), (2.1, 9)])
def test_links_are_slow_from_two_batches_on(stage, batches, steps):
    """Beats are 0.29 or 0.31 s apart: the fourth has 2 batches done by 1.16 s, 9 by 1.86 s."""
    _, commands = begun(stage, with_one_slow_link(batches), at=0.0, k=1, batches=1, most=24)
    assert works(commands)[3].steps == steps


def test_links_stay_slow_until_they_are_clearly_quick(stage):
    on, _ = begun(stage, with_one_slow_link(2.1), at=0.0, k=1, batches=1, most=24)

    def steps_of_the_fourth(batches):
        for client, speed in enumerate(with_one_slow_link(batches)):
            arrive(on, on.session.books.timers[BEAT] - 0.01, client, speed)
        return works(beat(on))[3].steps

    found = [steps_of_the_fourth(batches) for batches in (1.9, 1.1, 0.9, 1.9, 2.1)]
    assert [steps > 3 for steps in found] == [True, True, False, False, True]


def test_where_links_are_slow_updates_count_by_the_age_of_their_model(stage):
    """On the third beat one is of the first of three versions, and counts a third of its data.

    Its next, of the fourth of five, counts four fifths; its batches do not matter.
    """
    speeds = [(1.0, 0.5), *[(1.0, 2.9)] * 3]
    on, _ = begun(stage, speeds, at=0.0, k=1, batches=1, most=24, samples=[100, 300, 210, 200])

    def weights_when(*clients):
        for client in clients:
            arrive(on, on.session.books.timers[BEAT] - 0.01, client, speeds[client], steps=9)
        return of(Aggregate, beat(on))[0].weights

    assert [weights_when(0), weights_when(0)] == [(100.0,), (100.0,)]
    assert weights_when(0, 1) == (100.0, pytest.approx(300 / 3))
    assert on.session.books.version(GLOBAL) == 3
    assert weights_when(0, 2) == (100.0, pytest.approx(210 / 4))
    assert weights_when(0, 1) == (100.0, pytest.approx(300 * 4 / 5))


def test_where_all_have_failed_before_the_first_beat_they_are_asked_again(stage):
    on = stage(Cadence, clients=2, k=1, batches=0, halvings=0)
    assert of(SetTimer, on.profile(1.0, 0, rates(*QUICK))) == [SetTimer(MEET, pytest.approx(4.0))]
    for client in (0, 1):
        on.tell(Failed(2.0, client, on.open_tasks()[client].task, "lost"))
    assert sorted(one.client for one in of(Probe, on.tell(Timer(4.0, MEET)))) == [0, 1]


def test_the_first_work_is_of_whole_batches_since_it_has_begun(stage):
    _, commands = halved(stage)
    assert {(work.batch_size, work.depth) for work in works(commands).values()} == {(20, None)}


def test_what_a_part_of_a_batch_took_is_counted_as_of_a_whole_one(stage):
    """A quarter in 0.5 s is a batch in 2 s: 0.8 s are enough for a quarter again."""
    on, _ = halved(stage)
    arrive(on, 2.7, 2)
    beat(on)
    on.arrive(5.5, 2, rates=Rates(0.5, 40, 0.0, 2.0, 0.0), steps=1)
    assert works(beat(on))[2].batch_size == 5
    on.arrive(8.3, 2, rates=Rates(0.15, 40, 0.0, 2.0, 0.0), steps=1)  # it has become faster
    work = works(beat(on))[2]
    assert (work.batch_size, work.steps) == (20, 1)


def test_a_part_that_was_lost_is_not_taken_for_the_next_work(stage):
    on, _ = halved(stage)
    arrive(on, 2.7, 2)
    assert works(beat(on))[2].batch_size == 5
    on.tell(Failed(3.0, 2, on.open_tasks()[2].task, "lost"))
    on.tell(Left(3.0, 2))
    assert works(on.tell(Joined(4.0, 2, 200)))[2].batch_size == 20  # till 8.4 s
    beat(on)
    arrive(on, 8.3, 2)
    work = works(beat(on))[2]
    assert (work.batch_size, work.stop_at) == (5, pytest.approx(11.2 - 2.0))


def test_parts_are_no_smaller_than_halvings_say(stage):
    on, _ = halved(stage, halvings=1)
    arrive(on, 2.7, 2)
    work = works(beat(on))[2]  # half a batch takes 1.05 s: with the next beat it is a whole one
    assert (work.batch_size, work.stop_at) == (20, pytest.approx(8.4 - 2.0))


def test_an_update_counts_the_less_the_more_batches_it_got_through_in_its_beats(stage):
    on, _ = begun(stage, NEAR, samples=[100, 200, 200, 200])
    arrive(on, 9.9, 0, NEAR[0], steps=25)
    arrive(on, 9.9, 1, NEAR[1], steps=4)
    assert of(Aggregate, beat(on))[0].weights == (pytest.approx(20), pytest.approx(100))


def test_an_update_counts_its_clients_data_by_the_root_of_its_beats(stage):
    on, _ = begun(stage, NEAR, samples=[100, 200, 50, 200])
    arrive(on, 9.9, 0, NEAR[0])
    arrive(on, 9.9, 1, NEAR[1])
    first = of(Aggregate, beat(on))[0]
    assert first.weights == (100.0, 200.0)
    arrive(on, 19.9, 0, NEAR[0])
    beat(on)
    arrive(on, 29.9, 2, NEAR[2])
    arrive(on, 29.9, 0, NEAR[0])
    third = of(Aggregate, beat(on))[0]
    assert third.weights == (pytest.approx(50 * 3**0.5), 100.0)


def test_with_power_one_a_client_counts_by_its_data_over_time(stage):
    on, _ = begun(stage, NEAR, power=1.0, samples=[100, 200, 300, 200])
    counted = {0: 0.0, 2: 0.0}
    for number in range(1, 7):
        at = 10.0 * number
        clients = [0, 2] if number % 3 == 0 else [0]
        for client in clients:
            arrive(on, at - 0.1, client, NEAR[client])
        step = of(Aggregate, beat(on))[0]
        for client, weight in zip(clients, step.weights, strict=True):
            counted[client] += weight
    assert counted == {0: 600.0, 2: 1800.0}


def test_who_is_free_begins_at_the_beat_with_work_that_ends_before_one(stage):
    on, _ = begun(stage)
    arrive(on, 9.9, 0)
    commands = beat(on)
    work = works(commands)[0]
    assert work.steps == 22
    assert work.stop_at == pytest.approx(19.0)
    assert of(SetTimer, commands) == [SetTimer(BEAT, pytest.approx(20.0))]


def test_fewer_batches_of_the_whole_model_where_that_is_the_cut(stage):
    _, commands = begun(stage, cut="batches")  # of all its data; one of ten fits
    work = works(commands)[3]
    assert work.depth is None
    assert work.steps == 1


def test_local_epochs_have_a_limit(stage):
    _, commands = begun(stage, max_epochs=1)
    assert works(commands)[0].steps == 10


def test_who_does_not_answer_is_not_waited_for_longer_than_it_costs_the_others(stage):
    on = stage(Cadence, k=2, batches=0, halvings=0)
    on.profile(1.0, 0, rates(*QUICK))
    commands = on.profile(1.0, 1, rates(*MIDDLE))
    assert of(SetTimer, commands) == [SetTimer(MEET, pytest.approx(8.0))]
    commands = on.tell(Timer(8.0, MEET))
    assert set(works(commands)) == {0, 1}
    late = on.profile(9.0, 2, rates(*SLOW))
    assert works(late)[2].steps == 13


def test_answers_that_come_too_late_for_the_first_beat_put_it_off(stage):
    on = stage(Cadence, clients=3, k=3, most=1)
    on.profile(1.0, 0, rates(*QUICK))
    on.profile(1.0, 1, rates(*MIDDLE))
    commands = on.profile(50.0, 2, rates(*SLOW))
    assert of(SetTimer, commands) == [SetTimer(BEAT, pytest.approx(54.1))]
    assert set(works(commands)) == {0, 1, 2}


def test_a_client_that_fits_no_beat_is_let_go_and_asked_again(stage):
    on, commands = begun(stage, speeds=(QUICK, QUICK, (4.0, 500.0)), k=1, most=1)
    assert [one.client for one in of(Cancel, commands)] == [2]
    commands = beat(on)
    assert [one.client for one in of(Probe, commands)] == [2]


def test_one_that_fails_has_its_place_taken_at_the_next_beat(stage):
    on, _ = begun(stage)
    task = on.open_tasks()[0].task
    assert on.tell(Failed(3.0, 0, task, "lost")) == []
    assert 0 in works(beat(on))


def test_beats_stop_where_nobody_is_left_and_begin_anew_when_somebody_comes(stage):
    on, _ = begun(stage, speeds=(QUICK, MIDDLE))
    for client in (0, 1):
        task = on.open_tasks()[client].task
        on.tell(Left(2.0, client))
        on.tell(Failed(2.0, client, task, "left"))
    assert of(SetTimer, beat(on)) == []
    assert [one.client for one in of(Probe, on.tell(Joined(50.0, 1, 200)))] == [1]
    commands = on.profile(51.0, 1, rates(*MIDDLE))
    assert of(SetTimer, commands) == [SetTimer(BEAT, pytest.approx(60.0))]


def test_on_a_real_network_beats_have_slack_and_work_ends_without_it(stage):
    _, commands = begun(stage, slack=0.1)
    assert of(SetTimer, commands) == [SetTimer(BEAT, pytest.approx(11.0))]
    assert works(commands)[1].stop_at == pytest.approx(8.0)


def test_more_fastest_than_clients_at_work_are_refused():
    with pytest.raises(ConfigError, match="k is 5, but 4 clients are at work"):
        CadenceSettings(n=4, k=5)


def test_a_note_says_who_is_not_asked(stage):
    on, _ = begun(stage, speeds=(QUICK, QUICK), k=1, most=1)
    arrive(on, 4.9, 0)
    arrive(on, 4.9, 1, speed=(4.0, 500.0))
    commands = beat(on)
    assert [one.client for one in of(Note, commands)] == [1]


def test_under_an_adaptive_optimiser_half_of_the_clients_make_a_step(stage):
    """Beats move a model of their own; the optimiser gets what they have come to."""
    on, commands = begun(stage, NEAR, train={"adaptive": True}, samples=[100, 200, 200, 200])
    assert {one.slot for one in (*of(Probe, on.first), *of(Train, commands))} == {BEATS}
    arrive(on, 9.9, 0, NEAR[0], steps=25)
    first = beat(on)
    assert of(Aggregate, first)[0].slot == BEATS
    assert not of(Blend, first)  # one of four
    arrive(on, 19.9, 0, NEAR[0], steps=25)
    assert not of(Blend, beat(on))  # the same one again
    arrive(on, 29.9, 1, NEAR[1], steps=4)
    third = beat(on)
    assert of(Aggregate, third)[0].weights == (200.0,)  # by its data alone
    assert of(Blend, third) == [Blend((BEATS,), (1.0,)), Blend((GLOBAL,), (1.0,), BEATS)]
    assert {one.version for one in of(Train, third)} == {4}
    arrive(on, 39.9, 0, NEAR[0])
    assert not of(Blend, beat(on))


def test_half_is_of_those_who_are_at_work(stage):
    on, _ = begun(stage, train={"adaptive": True})
    for client in (2, 3):
        on.tell(Failed(5.0, client, on.open_tasks()[client].task, "lost"))
        on.tell(Left(5.0, client))
    arrive(on, 9.9, 0)
    assert len(of(Blend, beat(on))) == 2


def test_the_power_under_an_adaptive_optimiser_is_one_of_its_own(stage):
    adaptive = {"train": {"adaptive": True}, "power_adaptive": 0.5}
    on, _ = begun(stage, NEAR, **adaptive, samples=[100, 200, 200, 200])
    arrive(on, 9.9, 0, NEAR[0], steps=25)
    assert of(Aggregate, beat(on))[0].weights == (pytest.approx(20),)
