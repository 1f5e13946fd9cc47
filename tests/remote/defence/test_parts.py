"""Parts of the defence by themselves: logs, deadlines, norms, verdicts, shares and speeds."""

import logging
import math

import pytest

from fedpace.core.commands import Probe, Train, Work
from fedpace.core.events import Profiled, Rates
from fedpace.learn.server.checks import UnfitNumbers, UpdateNorms
from fedpace.remote.defence.deadlines import Deadlines
from fedpace.remote.defence.health import ModelHealth
from fedpace.remote.defence.influence import MOST_HELD_S, InfluenceLimit
from fedpace.remote.defence.norms import GuessedBound, NormGuard
from fedpace.remote.defence.repeats import RepeatLog
from fedpace.remote.defence.speeds import speeds_seen
from fedpace.remote.settings import ServeSettings
from tests.messages import arrived

RATES = Rates(1.0, 10, 2.0, 3.0, 0.5)


def test_what_is_said_of_a_member_again_and_again_is_counted(caplog):
    log = RepeatLog(logging.getLogger("fedpace.server"))
    for number in range(4447):
        log.warn("mallory", "garbage", "message %d of %s is none", number, "mallory")
    log.warn("alice", "garbage", "message %d of %s is none", 1, "alice")
    assert len(caplog.records) == 5
    assert caplog.records[3].getMessage() == "message 999 of mallory is none (1000 times so far)"


def test_a_deadline_is_a_multiple_of_what_the_client_needs_and_not_before_the_floor():
    deadlines = Deadlines(ServeSettings(deadline_floor_s=40.0))
    deadlines.learned(0, RATES, 20, done=True)
    deadlines.opened(Train(0, 1, 0, Work(20, epochs=2)), 100.0)
    assert deadlines.next_at() == 100 + 5 * (2 + 20 + 3)
    deadlines.opened(Probe(0, 2, 0, 20), 100.0)
    assert deadlines.next_at() == 140
    assert [one.task for one in deadlines.overdue(140.0)] == [2]
    deadlines.opened(Probe(0, 3, 0, 20), 200.0)
    assert deadlines._due(*deadlines._awaited[3]) == 280  # doubled, since it missed one
    deadlines.closed(1)
    deadlines.closed(3)
    assert deadlines.next_at() == math.inf


def test_who_is_not_known_has_a_generous_time_which_others_make_shorter():
    deadlines = Deadlines(ServeSettings())
    deadlines.opened(Train(5, 1, 0, Work(20, steps=5)), 0.0)
    assert deadlines.next_at() == 3600
    deadlines.learned(0, RATES, 10, done=True)
    assert deadlines.next_at() == 20 * (2 + 5 * 2 + 3)
    assert Deadlines(ServeSettings(deadline_factor=0.0)).next_at() == math.inf


def test_work_with_a_stop_is_due_soon_after_it():
    deadlines = Deadlines(ServeSettings(deadline_floor_s=1.0))
    deadlines.learned(0, RATES, 20, done=True)
    deadlines.opened(Train(0, 1, 0, Work(20, epochs=100, stop_at=20.0)), 10.0)
    assert deadlines.next_at() == 10 + 5 * (10 + 1 + 3)


def sized(params, buffers=0.0, depth=2, scale=1.0):
    return UpdateNorms(depth, None, params, buffers, scale, scale)


def claim(guard, client, norms, members=20):
    guard.note(client, norms)
    guard.check(client, norms, members)


def test_a_norm_is_held_against_the_median_of_members():
    guard = NormGuard(10.0)
    for client in range(4):
        claim(guard, client, sized(1.0 + client))
    claim(guard, 4, sized(19.0))
    with pytest.raises(UnfitNumbers, match="the median of 6 members is 3"):
        claim(guard, 5, sized(1e22))
    for _ in range(50):  # to say it often moves nothing
        with pytest.raises(UnfitNumbers):
            claim(guard, 5, sized(1e22))


def test_statistics_are_held_against_those_of_others_too():
    guard = NormGuard(10.0)
    for client in range(4):
        claim(guard, client, sized(1.0, buffers=2.0))
    with pytest.raises(UnfitNumbers, match="changed buffers of norm 80000"):
        claim(guard, 4, sized(1.0, buffers=8e4))


def test_the_first_update_cannot_set_the_measure():
    guard = NormGuard(10.0)
    with pytest.raises(GuessedBound, match="at first at most 10 times"):
        claim(guard, 0, sized(1e22))
    claim(guard, 1, sized(2.0))
    claim(guard, 2, sized(2.5))
    claim(guard, 3, sized(3.0))
    with pytest.raises(UnfitNumbers):
        claim(guard, 0, sized(1e22))


def test_a_guess_that_is_wrong_for_all_gives_way_when_they_are_known():
    guard = NormGuard(10.0)
    for client in range(2):
        with pytest.raises(GuessedBound):
            claim(guard, client, sized(50.0))
    for client in (2, 0, 1):
        claim(guard, client, sized(50.0))
    claim(NormGuard(10.0), 0, sized(50.0), members=1)  # who is alone is the measure


def test_other_parts_of_the_model_are_measured_by_themselves_once_they_are_known():
    guard = NormGuard(2.0)
    for client in range(3):
        claim(guard, client, sized(100.0, depth=2, scale=50.0))
        claim(guard, client, sized(1.0, depth=1, scale=1.0))
    with pytest.raises(UnfitNumbers):
        claim(guard, 0, sized(50.0, depth=1))
    again = NormGuard(2.0)
    again.load(guard.state())
    assert again._known == guard._known


def test_several_members_of_good_standing_condemn_a_version_and_liars_do_not():
    health = ModelHealth(10.0)
    health.bad(7, 4, trusted=False)
    health.bad(8, 4, trusted=False)
    assert health.verdict is None
    health.bad(1, 4, trusted=True)
    assert health.verdict is None
    health.bad(2, 4, trusted=True)
    assert "2 of 2 members that trained version 4" in health.verdict
    assert sorted(health.rolled_back(5, 3)) == [1, 2, 7, 8]
    health.bad(1, 5, trusted=True)
    health.bad(2, 5, trusted=True)
    assert health.verdict is None  # what it has now was good: it is they


def test_one_diverging_member_among_good_ones_condemns_nothing():
    health = ModelHealth(10.0)
    for client in range(3):
        health.good(client, 4, 4, 10)
    health.bad(8, 4, trusted=True)
    health.bad(9, 4, trusted=True)
    assert health.verdict is None


@pytest.mark.parametrize("loss", [None, 30.0])
def test_a_loss_that_blows_up_condemns_a_version(loss):
    health = ModelHealth(10.0)
    health.tested(0, 2.3)
    health.tested(1, 5.0)
    assert health.verdict is None
    health.tested(2, loss)
    assert "the loss of version 2" in health.verdict


def test_points_are_proved_by_several_members():
    health = ModelHealth(0.0)
    assert not health.good(0, 0, 3, 10)
    assert not health.good(0, 1, 4, 10)
    assert health.good(1, 2, 5, 10)  # the next point is version 5
    assert not health.good(2, 4, 6, 10)
    assert not health.good(3, 4, 6, 10)  # both before it
    assert not health.good(2, 5, 6, 10)
    assert health.good(3, 6, 7, 10)


def test_nobody_has_more_than_its_share_for_long():
    limit = InfluenceLimit(3.0)
    held = 0
    for number in range(300):
        if not limit._held:  # else it is at work
            if limit.exceeds(0, 10):
                held += 1
                limit.hold(arrived(float(number), 0, number))
            else:
                limit.note(0, 10)
        limit.note(1 + number % 9, 10)
        for event in limit.release(float(number), 10):
            assert event.client == 0
    assert 0.25 < limit._counts[0] / len(limit._latest) <= 0.31
    assert held > 20


def test_a_held_update_is_let_through_after_a_while():
    limit = InfluenceLimit(1.0)
    limit.note(0, 2)
    assert limit.exceeds(0, 2)
    limit.hold(arrived(5.0, 0, 9))
    assert limit.next_at() == 5 + MOST_HELD_S
    assert not list(limit.release(6.0, 2))
    assert [one.task for one in limit.release(5 + MOST_HELD_S, 2)] == [9]
    assert not InfluenceLimit(0.0).exceeds(0, 100)


TRAIN = Train(0, 1, 0, Work(20, epochs=1))


@pytest.mark.parametrize(("seen_s", "batch_s"), [(0.0, 0.0), (15.0, None), (40.0, None), (95.0, 9.0)])
def test_speeds_are_replaced_where_they_do_not_agree_with_the_time_that_is_seen(seen_s, batch_s):
    event = arrived(seen_s, 0, 1, steps=10)
    found = speeds_seen(event, RATES, TRAIN, seen_s, 3.0, waited=False)
    assert (found is None) == (batch_s is None)
    if found is not None:
        assert found.batch_s == pytest.approx(batch_s)


def test_a_task_that_waited_or_trained_a_part_is_not_held_to_its_speeds():
    event = arrived(95.0, 0, 1, steps=10)
    assert speeds_seen(event, RATES, TRAIN, 95.0, 3.0, waited=True) is None
    part = Train(0, 1, 0, Work(20, epochs=1, depth=1))
    assert speeds_seen(event, RATES, part, 0.1, 3.0, waited=False) is None
    profile = Profiled(0.1, 0, 1, RATES)
    assert speeds_seen(profile, RATES, Probe(0, 1, 0, 20), 0.1, 3.0, waited=False) is not None
