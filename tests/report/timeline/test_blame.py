"""Blame: journals with a known cause, and the cause that is named."""

import pytest

from fedpace.core.commands import Aggregate, Blend, Cancel, Drop, Measure, Probe, SetTimer, Train, Work
from fedpace.core.events import Failed, Joined, Left, Measured, Profiled, Started, Timer
from fedpace.report.timeline.phases import Cause, Phase, Waits
from fedpace.report.timeline.sentences import explain_round, seconds_text
from tests.report.conftest import make_train
from tests.report.timeline.journals import begin, done, mean, rates, tale, timeline


def cause(found, index=0):
    rounds = found.rounds
    return Cause(rounds.cause[index]), int(rounds.client[index]), float(rounds.cause_s[index])


def round_of(speeds, ends):
    """One round of clients with these speeds, which take these seconds; all are used."""
    one = tale(len(ends))
    begin(one, range(len(ends)))
    order = sorted(range(len(ends)), key=lambda client: ends[client])
    for client in order:
        commands = [mean([one + 1 for one in order])] if client == order[-1] else []
        one.on(done(ends[client], client, client + 1, speeds=speeds[client]), *commands)
    return timeline(one)


def test_a_slow_upload_is_named_even_where_everybody_computes_for_longer():
    usual, slow = {"up_s": 1.0}, {"up_s": 22.0}
    found = round_of([usual, usual, slow, usual], [32.0, 31.5, 53.0, 32.0])
    assert cause(found) == (Cause.UPLOAD, 2, 22.0)
    # Client 0 and 3 wait 21 s, client 1 21.5 s, of 4 x 53 s.
    assert found.rounds.waited[0] == pytest.approx(63.5 / 212)
    assert explain_round(found.rounds, 0) == (
        "53 s, because of client 2's upload (22 s); 30% of all client time waited"
    )


def test_a_slow_download_is_named():
    found = round_of([{"down_s": 30.0}, {}, {}], [42.0, 12.0, 12.5])
    assert cause(found) == (Cause.DOWNLOAD, 0, 30.0)


def test_a_slow_compute_is_named_even_where_its_link_is_slow_as_everybodys():
    speeds = {"down_s": 10.0, "up_s": 20.0}
    found = round_of([speeds] * 3, [40.0, 41.0, 58.0])
    assert cause(found) == (Cause.COMPUTE, 2, 28.0)


def test_of_clients_that_are_alike_the_longest_phase_is_the_cause():
    found = round_of([{"down_s": 1.0, "up_s": 2.0}] * 3, [20.0, 20.1, 20.2])
    assert cause(found)[:2] == (Cause.COMPUTE, 2)


def test_a_client_that_leaves_at_last_is_named_as_offline():
    one = tale(3)
    begin(one, range(3))
    one.on(done(10.0, 0, 1))
    one.on(done(11.0, 1, 2))
    one.on(Left(40.0, 2))
    one.on(Failed(40.0, 2, 3, "the client left"), mean([1, 2]))
    found = timeline(one)
    assert cause(found) == (Cause.OFFLINE, 2, 40.0)
    assert explain_round(found.rounds, 0).startswith(
        "40 s, because client 2 was or went offline (40 s)"
    )


def test_a_round_that_waits_for_somebody_to_come_is_due_to_who_was_offline():
    one = tale(1)
    begin(one, [0])
    one.on(done(10.0, 0, 1), mean([1]))
    one.on(Left(11.0, 0))
    one.on(Joined(60.0, 0, 10), make_train(0, 2, 1))
    one.on(done(72.0, 0, 2, 1), mean([2]))
    assert cause(timeline(one), 1) == (Cause.OFFLINE, 0, 49.0)


def test_a_replacement_is_not_blamed_for_the_client_that_dropped_out():
    one = tale(3)
    begin(one, [0, 1])
    one.on(done(12.0, 0, 1))
    one.on(Failed(50.0, 1, 2, "the client dropped out"), make_train(2, 3))
    one.on(done(62.0, 2, 3), mean([1, 3]))
    assert cause(timeline(one)) == (Cause.OFFLINE, 1, 50.0)


def test_a_refused_task_is_named_as_failed():
    one = tale(2)
    begin(one, [0, 1])
    one.on(done(12.0, 0, 1))
    one.on(Failed(30.0, 1, 2, "refused: its norm"), mean([1]))
    found = timeline(one)
    assert cause(found) == (Cause.FAILED, 1, 30.0)
    assert "client 1's task, which failed" in explain_round(found.rounds, 0)


def test_a_deadline_is_named_with_who_was_late():
    one = tale(3)
    begin(one, range(3), SetTimer("deadline", 25.0))
    one.on(done(10.0, 0, 1))
    one.on(done(12.0, 1, 2))
    one.on(Timer(25.0, "deadline"), Cancel(2, 3, "late"), mean([1, 2]))
    found = timeline(one)
    assert cause(found) == (Cause.DEADLINE, 2, 25.0)
    assert explain_round(found.rounds, 0) == (
        "25 s, because of a time that the policy set (25 s); client 2 was late; "
        "37% of all client time waited"
    )


@pytest.mark.parametrize("slack", [0.0, 0.25])
def test_a_time_that_is_just_what_a_client_needs_is_that_clients_pace(slack):
    """Client 1 needs 2 s down, 5 batches of 3 s and 1 s up."""
    batch_s, down_s = (2.0, 3.0, 9.0), (1.0, 2.0, 1.0)
    speeds = [rates(*both, batches=5) for both in zip(down_s, batch_s, strict=True)]
    end = 18.0 * (1 + slack)
    one = tale(3)
    one.on(Started(0.0), *(Probe(client, client + 1, 0, 20) for client in range(3)))
    for client in range(3):
        commands = [SetTimer("round ends", end)] if client == 2 else []
        work = [Train(one, one + 1, 0, Work(20, epochs=1)) for one in range(3)] if commands else []
        one.on(Profiled(5.0 + client, client, client + 1, speeds[client]), *commands, *work)
    one.on(done(12.0, 0, 1))
    one.on(done(17.0, 1, 2))
    one.on(Timer(end, "round ends"), Cancel(2, 3, "late"), mean([1, 2]))
    found = timeline(one, slack=slack)
    assert cause(found) == (Cause.PACE, 1, end)
    assert "as long as client 1 needs, most of it for compute; 1 client was late" in explain_round(
        found.rounds, 0
    )


def test_a_deadline_that_nobody_met_is_an_empty_round():
    one = tale(2)
    begin(one, range(2), SetTimer("deadline", 25.0))
    one.on(Timer(25.0, "deadline"), Cancel(0, 1, "late"), Cancel(1, 2, "late"), mean([]))
    found = timeline(one)
    assert found.waits is Waits.ROUND
    assert cause(found) == (Cause.DEADLINE, -1, 25.0)
    assert "2 clients were late; no update was used" in explain_round(found.rounds, 0)


def test_a_buffer_is_named_with_who_filled_it():
    one = tale(4)
    begin(one, range(3))
    one.on(done(12.0, 0, 1), make_train(3, 4))
    one.on(done(20.0, 1, 2), mean([1, 2]), make_train(0, 5, 1))
    found = timeline(one)
    assert found.waits is Waits.NOTHING
    assert cause(found) == (Cause.BUFFER, -1, 20.0)
    assert (found.rounds.last[0], found.rounds.phase[0]) == (1, Phase.COMPUTE)
    assert explain_round(found.rounds, 0) == (
        "20 s, to fill the buffer with 2 updates, the last from client 1 (compute); "
        "0% of all client time waited"
    )


def test_single_updates_are_due_to_what_their_clients_did_in_that_time():
    one = tale(2)
    begin(one, range(2))
    one.on(done(12.0, 0, 1), mean([1]), make_train(0, 3, 1))
    one.on(done(13.0, 1, 2, speeds={"up_s": 5.0}), mean([2]))
    found = timeline(one)
    assert found.waits is Waits.NOTHING
    assert [cause(found, index) for index in (0, 1)] == [
        (Cause.COMPUTE, 0, 10.0),
        (Cause.UPLOAD, 1, 1.0),  # all of the second that the round took
    ]


def test_a_groups_round_begins_with_its_group():
    one = tale(3)
    begin(one, [0, 1, 2], SetTimer("group 1", 50.0))
    one.on(done(12.0, 2, 3), mean([3]))
    one.on(done(30.0, 0, 1))
    one.on(done(41.0, 1, 2, speeds={"up_s": 20.0}), mean([1, 2]))
    found = timeline(one)
    assert found.waits is Waits.GROUP
    assert found.rounds.start.tolist() == [0.0, 0.0]
    assert cause(found, 1) == (Cause.UPLOAD, 1, 20.0)


def test_a_tiers_round_is_named_by_its_last_member():
    one = tale(2)
    begin(one, [0, 1])
    one.on(done(12.0, 0, 1))
    tier = Aggregate((1, 2), (0.5, 0.5), rule="mix", slot="tier-1")
    one.on(done(30.0, 1, 2, speeds={"up_s": 15.0}), tier, Blend(("tier-1",), (1.0,)))
    found = timeline(one)
    assert found.rounds.updates.tolist() == [2]
    assert found.tasks.round.tolist() == [1, 1]
    assert cause(found) == (Cause.UPLOAD, 1, 15.0)


def test_work_that_waited_for_anothers_profile_is_due_to_that_other():
    one = tale(2)
    begin(one, [], Probe(0, 1, 0, 4, go_on=False), Probe(1, 2, 0, 4, go_on=False))
    work = Work(4, steps=2)
    one.on(Profiled(2.0, 0, 1, rates(down_s=1.0)))
    both = [Train(0, 1, 0, work), Train(1, 2, 0, work)]
    one.on(Profiled(40.0, 1, 2, rates(down_s=39.0)), *both)
    one.on(done(43.0, 0, 1, speeds={"down_s": 1.0}))
    one.on(done(44.0, 1, 2, speeds={"down_s": 39.0}), mean([1, 2]))
    assert cause(timeline(one)) == (Cause.DOWNLOAD, 1, 39.0)


def test_a_measurement_before_the_aggregation_changes_nothing():
    one = tale(2)
    begin(one, [0, 1])
    one.on(done(12.0, 0, 1))
    one.on(done(30.0, 1, 2, speeds={"up_s": 15.0}), Measure(1, "norm", (1, 2)))
    one.on(Measured(30.0, 1, (1.0, 1.0)), mean([1, 2]))
    assert cause(timeline(one)) == (Cause.UPLOAD, 1, 15.0)


def test_an_update_that_was_dropped_counts_for_no_round():
    one = tale(2)
    begin(one, [0, 1])
    one.on(done(12.0, 0, 1), Drop(1, "old"))
    one.on(done(30.0, 1, 2), mean([2]))
    found = timeline(one)
    assert found.rounds.updates.tolist() == [1]
    assert found.tasks.round.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"),
        (0.254, "0.25 s"),
        (42.3, "42 s"),
        (119.0, "119 s"),
        (210, "3.5 min"),
        (43200, "12 h"),
    ],
)
def test_seconds_are_told_in_a_few_digits(seconds, text):
    assert seconds_text(seconds) == text
