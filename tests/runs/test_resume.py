"""A journal that is retraced, and snapshots."""

from types import SimpleNamespace

import pytest
import torch

from fedpace.core.codec import decode
from fedpace.core.commands import Aggregate, Command, Evaluate, Note
from fedpace.core.errors import FedpaceError, JournalError
from fedpace.core.events import Measured, Started, Timer
from fedpace.core.facts import Closed, Evaluated, Finished, Ignored, Spent
from fedpace.core.journal import Journal, read
from fedpace.core.policy import NoSettings, Policy
from fedpace.core.run import Standing
from fedpace.core.session import Session
from fedpace.learn import files
from fedpace.remote.spool import Spool
from fedpace.runs.resume import RetracedJournal, Snapshot, Snapshots, count_lines, retrace
from tests.messages import evaluated
from tests.runs.test_folder import HEADER

MESSAGES = (
    Started(0.0),
    Aggregate((), ()),
    evaluated(0.0, 1, 0.5, 2.0),
    Ignored(1.0, "timer end"),
    Timer(2.0, "end"),
    Measured(2.0, 1, (3.0, None)),
    evaluated(2.0, 2, 0.75),
)


class Models:
    """Notes what becomes of it."""

    tasks = frozenset({1})

    def __init__(self):
        self.notes = []
        self.retracing = False

    def retrace(self, recall):
        self.retracing = True

    def load(self, state):
        self.notes.append(("load", state))
        self.retracing = False

    def state(self):
        return {"number": 7}


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, HEADER)
    for message in MESSAGES:
        journal.write(message)
    journal.close(complete=False)
    return path


def part(path):
    return path.with_name("journal.jsonl.part")


def test_lines_that_are_written_again_are_compared_and_others_added(path):
    journal = RetracedJournal(path, 4, None)
    for message in MESSAGES:
        journal.write(message)
    journal.close(complete=True)
    assert tuple(read(path)[1]) == MESSAGES


def test_a_line_that_differs_is_named(path):
    journal = RetracedJournal(path, 8, None)
    journal.write(MESSAGES[0])
    with pytest.raises(JournalError, match="line 3: the run does not go as it went"):
        journal.write(Aggregate((), (), lr=0.5))
    journal.close(complete=False)
    assert tuple(read(part(path))[1]) == MESSAGES


def test_a_line_that_is_not_written_again_can_be_passed_over(path):
    journal = RetracedJournal(path, 8, None)
    for line, message in journal.messages():
        if isinstance(message, Ignored | Evaluated):
            journal.skip()
        else:
            journal.write(message)
        assert journal.retraced == line
    journal.close(complete=True)
    assert tuple(read(path)[1]) == MESSAGES


def test_what_was_measured_is_recalled_in_its_order(path):
    journal = RetracedJournal(path, 8, None)
    assert journal.evaluated() == {"accuracy": 0.5, "loss": 2.0}
    assert journal.measured() == (3.0, None)
    assert journal.evaluated() == {"accuracy": 0.75}
    journal.close(complete=False)


def test_a_run_that_measures_more_than_it_did_does_not_go_as_it_went(path):
    journal = RetracedJournal(path, 8, None)
    journal.measured()
    for recall in (journal.measured, journal.clients_evaluated):
        with pytest.raises(JournalError, match="the run does not go as it went"):
            recall()
    journal.close(complete=False)


def test_models_learn_nothing_until_the_line_of_the_snapshot(path):
    journal, models = RetracedJournal(path, 8, Snapshot(3, {"number": 1})), Models()
    for message in MESSAGES[:2]:
        journal.restore(models)
        assert models.retracing
        assert not models.notes
        journal.write(message)
    for _ in range(2):
        journal.restore(models)
        assert models.notes == [("load", {"number": 1})]
    assert not models.retracing
    journal.close(complete=False)


class Failing(Models):
    """Cannot load what a snapshot has."""

    def __init__(self, error):
        super().__init__()
        self.error = error

    def load(self, state):
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        KeyError("weights"),
        IndexError("no third model"),
        TypeError("a list"),
        ValueError("too many"),
        AttributeError("no states"),
        RuntimeError("shapes differ"),
    ],
)
def test_a_snapshot_that_models_cannot_load_is_refused_as_one_of_another_version(path, error):
    journal = RetracedJournal(path, 8, Snapshot(1, {}))
    with pytest.raises(JournalError, match=r"of another version \(.*start over") as refused:
        journal.restore(Failing(error))
    assert refused.value.__cause__ is error
    journal.close(complete=False)


def test_a_gpu_without_memory_says_nothing_of_the_snapshot(path):
    journal = RetracedJournal(path, 8, Snapshot(1, {}))
    with pytest.raises(torch.OutOfMemoryError):
        journal.restore(Failing(torch.OutOfMemoryError("CUDA out of memory")))
    journal.close(complete=False)


@pytest.mark.parametrize("values", [{"lines": 3, "tensors": {}}, [3, {}]])
def test_a_snapshot_with_other_values_is_refused_as_one_of_another_version(tmp_path, values):
    files.save(tmp_path / "snapshot.pt", values)
    with pytest.raises(JournalError, match=r"snapshot\.pt: the snapshot is of another version"):
        Snapshot.find(tmp_path / "snapshot.pt")


def test_a_journal_that_is_shorter_than_its_snapshot_is_refused(path):
    with pytest.raises(JournalError, match="has 8 lines, but its snapshot needs 9"):
        RetracedJournal(path, 8, Snapshot(9, {}))


def test_lines_are_counted_that_were_written_to_their_end_but_not_the_end_of_the_run(path):
    assert count_lines(part(path)) == 8
    with part(path).open("a") as file:
        file.write('{"event":"joi')
    assert count_lines(part(path)) == 8
    journal = Journal.resume(path, 8)
    journal.write(Finished(3.0, "over"))
    journal.close(complete=False)
    assert count_lines(part(path)) == 8


@pytest.mark.parametrize("written", range(5))
def test_an_end_with_its_cost_and_its_open_tasks_is_said_again(path, written):
    end = [Closed(3.0, 0, 1), Closed(3.0, 1, 2), Spent(3.0, 5.0), Finished(3.0, "over")]
    journal = Journal.resume(path, 8)
    for message in end[:written]:
        journal.write(message)
    journal.close(complete=False)
    assert count_lines(part(path)) == 8


def test_the_cost_of_a_round_counts_and_that_of_the_end_does_not(path):
    for end, counted in (([Spent(3.0, 5.0)], 9), ([Spent(3.0, 5.0), Finished(3.0, "over")], 9)):
        journal = Journal.resume(path, 8)
        for message in (Spent(2.0, 4.0), *end):
            journal.write(message)
        journal.close(complete=False)
        assert count_lines(part(path)) == counted + (len(end) == 1)


def snapshots(path, tmp_path, spool=None):
    journal, now = Journal.resume(path, 8), [0.0]
    made = Snapshots(tmp_path / "snapshot.pt", journal, Models(), 10.0, spool, clock=lambda: now[0])
    return made, journal, now


@pytest.fixture
def spool(tmp_path):
    """The updates of three tasks, of which one is open and two are used."""
    made = Spool(tmp_path / "spool", 10, 100)
    for task in (1, 2, 3):
        made.offer(task, 10, bytes(32))
    return made


def test_a_snapshot_is_taken_in_time_and_when_nothing_is_due(path, tmp_path):
    take, journal, now = snapshots(path, tmp_path)
    take(Standing(0.0, 1, None))
    now[0] = 10.0
    take(Standing(0.0, 1, None, settled=False))
    assert Snapshot.find(tmp_path / "snapshot.pt") is None
    take(Standing(0.0, 1, None))
    assert Snapshot.find(tmp_path / "snapshot.pt") == Snapshot(8, {"number": 7})
    journal.close(complete=False)


def test_updates_are_freed_when_a_snapshot_has_them_and_it_comes_early_where_they_fill_the_disk(
    path, tmp_path, spool
):
    take, journal, _ = snapshots(path, tmp_path, spool)
    take(Standing(0.0, 1, None))
    take.join()
    assert not (tmp_path / "snapshot.pt").exists()  # there is room
    spool.total_bytes = 50
    take(Standing(0.0, 1, None))
    take.join()
    assert (tmp_path / "snapshot.pt").exists()
    assert spool.others(()) == {1, 2, 3}  # a damaged one falls back to what was before
    for _ in range(2):
        take(Standing(0.0, 1, None))
        take.join()
    assert (tmp_path / "snapshot.2.pt").exists()
    assert spool.others(()) == {1}
    journal.close(complete=False)


def test_a_full_disk_ends_a_simulation_and_is_told_where_a_run_is_served(
    path, tmp_path, spool, monkeypatch, caplog
):
    def full(path, values):
        raise FedpaceError("no space")

    monkeypatch.setattr(files, "save", full)
    take, journal, _ = snapshots(path, tmp_path)
    with pytest.raises(FedpaceError, match="no space"):
        take.save()
    served = Snapshots(tmp_path / "snapshot.pt", journal, Models(), 10.0, spool)
    served.save()
    assert spool.others(()) == {1, 2, 3}
    assert "no space; the run goes on" in caplog.text
    spool.total_bytes = 50
    served(Standing(0.0, 0, None))  # it is tried in time, not at once
    assert caplog.text.count("no space") == 1
    journal.close(complete=False)


class Curious(Policy):
    """Asks two questions at once, and another one at every answer."""

    def on_started(self, event):
        return (Evaluate(1), Aggregate((), ()), Evaluate(2), Note("asked"))

    def on_measured(self, event):
        return (Note(f"heard {event.request}"), Evaluate(event.request + 2))


class World:
    """Notes what it is told, and has nothing to say."""

    def __init__(self):
        self.applied, self.at = [], None
        self.healer = SimpleNamespace(retrace=lambda fact: None)

    def attach(self, books):
        pass

    def retrace(self, event):
        pass

    def apply(self, command):
        self.applied.append(command)

    def resume(self, at):
        self.at = at


def curious(recorder):
    return Session(Curious(NoSettings(), HEADER.context), recorder)


@pytest.mark.parametrize("lines", range(1, 18))
def test_wherever_a_journal_ends_what_is_missing_and_what_is_not_answered_is_found(tmp_path, lines):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, HEADER)
    session = curious(journal)
    events = (Started(0.0), Measured(1.0, 1, (0.5, None)), Measured(3.0, 2, (0.5, None)))
    for event in events:
        session.handle(event)
        session.record(evaluated(event.at, 1, 0.5))
        session.record(Ignored(event.at + 1.0, "timer end"))
    journal.close(complete=False)
    whole = part(path).read_bytes().splitlines(keepends=True)
    part(path).write_bytes(b"".join(whole[:lines]) + whole[lines][:5])

    retraced, world = RetracedJournal(path, count_lines(part(path)), None), World()
    found = retrace(retraced, curious(retraced), world, Models())
    retraced.close(complete=False)
    there = [decode(line) for line in whole[1:lines]]
    given = [one for one in there if isinstance(one, Command)]
    assert world.applied == given
    assert world.at == max((one.at for one in there if not isinstance(one, Command)), default=0.0)
    answered = {one.request for one in there if isinstance(one, Measured)}
    asked = [one for one in given if isinstance(one, Evaluate)]
    assert list(found.asked) == [one for one in asked if one.request not in answered]
    now = part(path).read_bytes().splitlines(keepends=True)
    assert [decode(line) for line in now[lines:]] == list(found.missing)
    assert now == whole[: len(now)]  # as if it had not been broken off
    if there and not isinstance(there[-1], Evaluated | Ignored):
        assert isinstance(decode(whole[len(now)]), Evaluated), (
            "all commands of the last event are there"
        )


def test_a_policy_that_decides_otherwise_now_is_found_out(tmp_path):
    path = tmp_path / "journal.jsonl"
    journal = Journal(path, HEADER)
    curious(journal).handle(Started(0.0))
    journal.close(complete=False)
    for kind, line in ((Policy, 3), (Restless, 6)):
        retraced = RetracedJournal(path, count_lines(part(path)), None)
        session = Session(kind(NoSettings(), HEADER.context), retraced)
        with pytest.raises(JournalError, match=f"line {line}: the run does not go as it went"):
            retrace(retraced, session, World(), Models())
        retraced.close(complete=False)


class Restless(Curious):
    def on_started(self, event):
        return (*super().on_started(event)[:3], Note("something else"))
