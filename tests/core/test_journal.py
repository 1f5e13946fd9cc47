import resource
from contextlib import contextmanager

import pytest

from fedpace.core.commands import Note
from fedpace.core.errors import JournalError
from fedpace.core.events import Joined, Started
from fedpace.core.facts import Finished
from fedpace.core.journal import Header, Journal, UnwrittenJournal, part_path, read, replay
from fedpace.core.model import ModelProfile
from fedpace.core.policy import Context, NoSettings, Policy
from fedpace.core.session import Session

MODEL = ModelProfile.even(2, 10).squared((0.5, 0.25))
HEADER = Header("p", {"n": 3}, Context(7, 2, MODEL, 20, lr=0.1, decay=0.5), {"label": "p"}, "0.1.0")


class Counting(Policy):
    """Says how many clients have joined."""

    def __init__(self, first: int = 1):
        super().__init__(NoSettings(), HEADER.context)
        self.joined = first - 1

    def on_joined(self, event):
        self.joined += 1
        return (Note(f"{self.joined} are here", event.client),)


def written(path, clients=3):
    with Journal(path, HEADER) as journal:
        run = Session(Counting(), journal)
        for client in range(clients):
            run.handle(Joined(float(client), client, 5))
        run.record(Finished(9.0, "done"))
    return path


def test_a_journal_reads_back_what_was_written(tmp_path):
    header, messages = read(written(tmp_path / "j.jsonl"))
    messages = list(messages)
    assert header == HEADER
    assert messages[:2] == [Joined(0.0, 0, 5), Note("1 are here", 0)]
    assert messages[-1] == Finished(9.0, "done")


def test_a_journal_replays_and_a_policy_that_acts_otherwise_is_found_out(tmp_path):
    path = written(tmp_path / "j.jsonl")
    replay(path, Counting())
    with pytest.raises(JournalError, match=r"2 are here.*but .* has .*1 are here"):
        replay(path, Counting(first=2))


def test_a_missing_last_command_is_found_out(tmp_path):
    path = written(tmp_path / "j.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))
    with pytest.raises(JournalError, match=r"has \[\]"):
        replay(path, Counting())


def test_until_the_run_is_over_the_journal_keeps_its_part_name(tmp_path):
    path = tmp_path / "j.jsonl"
    with pytest.raises(RuntimeError, match="boom"), Journal(path, HEADER):
        raise RuntimeError("boom")
    assert part_path(path).exists()
    assert not path.exists()
    with Journal(path, HEADER):
        pass
    assert path.exists()
    assert not part_path(path).exists()


def test_going_on_cuts_off_what_came_after(tmp_path):
    path = tmp_path / "j.jsonl"
    part = part_path(path)
    written(path)
    complete = path.read_bytes()
    path.rename(part)
    with part.open("a") as file:
        file.write('{"event":"joi')
    journal = Journal.resume(path, lines=3)
    assert len(part.read_text().splitlines()) == 3
    for message in list(read_from(complete, tmp_path))[2:]:
        journal.write(message)
    assert journal.lines == 8
    journal.close(complete=True)
    assert path.read_bytes() == complete


def read_from(content, folder):
    path = folder / "copy.jsonl"
    path.write_bytes(content)
    return read(path)[1]


def test_a_journal_shorter_than_its_snapshot_is_refused(tmp_path):
    path = written(tmp_path / "j.jsonl")
    path.rename(part_path(path))
    with pytest.raises(JournalError, match="has 8 lines, but its snapshot needs 9"):
        Journal.resume(path, lines=9)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda b: b"", "is empty"),
        (lambda b: b[:200], "line 1: not JSON"),
        (lambda b: b[:-20], "line 8: not JSON"),
        (lambda b: b.replace(b'"format":3', b'"format":99'), "line 1: journal format 99"),
        (
            lambda b: b.replace(b'"batch_size":20', b'"batch_size":-1'),
            "line 1: this is no Header.*batch_size is -1",
        ),
        (
            lambda b: b.replace(b'"client":2,"samples"', b'"klient":2,"samples"'),
            "line 6: .*unknown field `klient`",
        ),
        (lambda b: b.replace(b'"at":2.0', b'"at":NaN'), "line 6: not JSON"),
        (lambda b: b.replace(b'"at":2.0', b"\xff\xfe"), "line 6: not JSON"),
    ],
)
def test_a_broken_journal_names_the_line(tmp_path, change, complaint):
    path = written(tmp_path / "j.jsonl")
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(JournalError, match=complaint):
        list(read(path)[1])


def test_a_folder_or_nothing_is_no_journal(tmp_path):
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(JournalError, match="there is no journal"):
            read(path)


def test_events_come_before_the_commands_they_caused(tmp_path):
    kinds = [type(message).__name__ for message in read(written(tmp_path / "j.jsonl"))[1]]
    assert kinds == ["Joined", "Note"] * 3 + ["Finished"]
    assert Started not in kinds


def test_a_journal_of_format_2_is_read_with_its_accuracies_and_losses(tmp_path):
    with Journal(tmp_path / "journal.jsonl", HEADER) as journal:
        journal.write(Finished(2.0, "done"))
    text = (tmp_path / "journal.jsonl").read_text()
    first, last = text.replace('"format":3', '"format":2').replace(',"metrics":[]', "").splitlines()
    tests = [
        '{"fact":"evaluated","at":0.0,"version":0,"accuracy":0.1,"loss":2.5,"slot":"global"}',
        '{"fact":"evaluated","at":1.0,"version":1,"accuracy":0.5,"slot":"global"}',
    ]
    (tmp_path / "journal.jsonl").write_text("\n".join([first, *tests, last]) + "\n")
    header, messages = read(tmp_path / "journal.jsonl")
    assert [metric.name for metric in header.context.metrics] == ["accuracy", "loss"]
    begin, later, _ = messages
    assert (begin.metrics, later.metrics) == ({"accuracy": 0.1, "loss": 2.5}, {"accuracy": 0.5})
    assert (begin.accuracy, begin.loss, later.loss) == (0.1, 2.5, None)


@contextmanager
def room_for(count):
    """Let no file of this process become larger: what is written beyond fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("more", [1, 300, 5000])
def test_what_finds_no_room_on_the_disk_waits_in_memory_until_there_is_some(tmp_path, resumed, more):
    path = tmp_path / "j.jsonl"
    journal = Journal(path, HEADER, patient=True)
    messages = [Joined(float(number), number, 5) for number in range(more + 10)]
    for message in messages[:10]:
        journal.write(message)
    journal.flush()
    if resumed:
        journal.close(complete=False)
        journal = Journal.resume(path, 11, patient=True)
    there = part_path(path).read_bytes()
    with room_for(len(there) + 33):
        for message in messages[10:]:
            journal.write(message)
        for _ in range(2):
            with pytest.raises(UnwrittenJournal, match=r"j.jsonl.part cannot be written: .*resume"):
                journal.flush()
            assert part_path(path).read_bytes() == there, "half of a line is there"
    journal.sync()
    assert list(read(part_path(path))[1]) == messages
    journal.close(complete=True)
    assert list(read(path)[1]) == messages


def test_a_run_that_does_not_wait_for_room_is_told_at_once_and_can_be_gone_on_with(tmp_path):
    path = tmp_path / "j.jsonl"
    journal = Journal(path, HEADER)
    journal.write(Joined(0.0, 0, 5))
    journal.sync()
    size = part_path(path).stat().st_size
    with room_for(size + 1000):
        with pytest.raises(UnwrittenJournal):  # noqa: PT012
            for number in range(1, 5000):
                journal.write(Joined(float(number), number, 5))
        with pytest.raises(UnwrittenJournal):
            journal.close(complete=True)
    assert not path.exists()
    again = Journal.resume(path, 2)
    again.write(Joined(1.0, 1, 5))
    again.close(complete=True)
    assert [one.client for one in read(path)[1]] == [0, 1]


def test_only_its_owner_may_read_a_journal(tmp_path):
    assert written(tmp_path / "j.jsonl").stat().st_mode & 0o777 == 0o600
