"""The streaming pass against brute force, its memory, and journals that cannot be true."""

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpace.core.commands import Aggregate, Blend, Cancel, Drop, Train, Work
from fedpace.core.errors import JournalError
from fedpace.core.events import Arrived, Failed, Joined, Left, Started, Timer
from fedpace.core.facts import Closed, Finished
from fedpace.core.journal import Journal
from fedpace.report.summary import Summary, summarise
from fedpace.report.tally import Tally
from tests.messages import arrived
from tests.sizes import sizes

WORK = Work(batch_size=1, epochs=1)


def arrival(at: float, client: int, task: int) -> Arrived:
    return arrived(at, client, task, full_steps=1, up_bytes=10)


class Town:
    """Clients who come, go, get tasks and end them at whole seconds; counted second by second."""

    def __init__(self, clients: int) -> None:
        self.messages: list[object] = []
        self.tasks: dict[int, list[int]] = {}
        self.clients, self.now, self.last_task = clients, 0, 0
        self.busy_s = self.online_s = 0

    def step(self, wait: int, client: int, what: str) -> None:
        self.busy_s += wait * sum(bool(tasks) for tasks in self.tasks.values())
        self.online_s += wait * len(self.tasks)
        self.now += wait
        client %= self.clients
        # Commands take the time of the event before them.
        self.messages.append(Timer(self.now, "tick"))
        if client not in self.tasks:
            self.tasks[client] = []
            self.messages.append(Joined(self.now, client, 1))
        elif what == "leave":
            self.messages.append(Left(self.now, client))
            for task in self.tasks.pop(client):
                self.messages.append(Failed(self.now, client, task, "left"))
        elif what == "work":
            self.last_task += 1
            self.tasks[client].append(self.last_task)
            self.messages.append(Train(client, self.last_task, 0, WORK))
        elif self.tasks[client]:
            task = self.tasks[client].pop(0)
            done = arrival(self.now, client, task) if what == "arrive" else Cancel(client, task, "late")
            self.messages.append(done)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.integers(0, 3),
            st.sampled_from(["work", "work", "arrive", "cancel", "leave"]),
        ),
        max_size=60,
    )
)
def test_busy_and_online_seconds_are_those_of_counting_every_second(steps):
    town = Town(clients=4)
    for step in steps:
        town.step(*step)
    tally = Tally()
    for message in [*town.messages, Finished(float(town.now), "done")]:
        tally.write(message)
    assert tally.seconds() == (town.busy_s, town.online_s)
    assert tally.tasks == town.last_task


@sizes("tasks", 3000, 10_000)
@pytest.mark.parametrize("teller", ["tale", "paid"])
def test_memory_does_not_grow_with_the_journal(request, teller, tasks):
    header = request.getfixturevalue(teller).header

    def long_journal():
        yield Joined(0.0, 0, 1)
        yield Started(0.0)
        for task in range(1, tasks + 1):
            yield Train(0, task, 0, WORK)
            yield arrival(float(task), 0, task)
            yield Drop(task, "thrown away")
            yield Train(0, tasks + task, 0, WORK)
            yield Cancel(0, tasks + task, "late")

    Summary.of(header, [])
    tracemalloc.start()
    try:
        result = Summary.of(header, long_journal())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (result.arrived, result.dropped) == (tasks, tasks)
    assert peak < 50_000


def test_updates_reach_the_global_model_by_way_of_other_slots():
    """Two tiers; a round of the global model is a blend, and counts who is new in it."""
    tally = Tally()
    for message in (
        *(Joined(0.0, client, 1) for client in range(3)),
        *(Train(client, client + 1, 0, WORK) for client in range(3)),
        arrival(1.0, 0, 1),
        arrival(1.0, 1, 2),
        Aggregate((1, 2), (0.5, 0.5), rule="mix", slot="tier-1"),
        Blend(("tier-1",), (1.0,)),
        arrival(2.0, 2, 3),
        Aggregate((3,), (1.0,), rule="mix", slot="tier-2"),
        Blend(("tier-1", "tier-2"), (1.0, 1.0)),
    ):
        tally.write(message)
    assert tally.round_times == [1.0, 2.0]
    assert tally.clients_per_round == [2, 1]
    assert tally.rounds_of == {0: 1, 1: 1, 2: 1}
    assert tally.staleness == {0: 2, 1: 1}, "the last update was one global version old"


def test_tasks_that_the_end_of_the_run_closes_are_busy_until_then_and_counted():
    tally = Tally()
    for message in (
        Joined(0.0, 0, 1),
        Joined(0.0, 1, 1),
        Started(1.0),
        Train(0, 1, 0, WORK),
        Train(1, 2, 0, WORK),
        arrival(2.0, 1, 2),
        Closed(4.0, 0, 1),
        Finished(4.0, "done"),
    ):
        tally.write(message)
    assert tally.seconds() == (3.0 + 1.0, 8.0)
    assert (tally.unfinished, len(tally.books.open)) == (1, 0)
    with pytest.raises(JournalError, match="no such task is open"):
        tally.write(Closed(4.0, 0, 1))


TOLD = [
    Joined(0.0, 0, 1),
    Started(1.0),
    Train(0, 1, 0, WORK),
    arrival(2.0, 0, 1),
    Aggregate((1,), (1.0,)),
    Left(3.0, 0),
    Finished(4.0, "done"),
]


@pytest.fixture
def journal(tmp_path: Path, header) -> Path:
    path = tmp_path / "journal.jsonl"
    with Journal(path, header) as file:
        for message in TOLD:
            file.write(message)
    return path


def edit(path: Path, change) -> None:
    lines = path.read_text().splitlines()
    change(lines)
    path.write_text("\n".join(lines) + "\n")


def test_a_journal_on_disk_has_the_summary_of_its_messages(journal, header):
    assert summarise(journal) == Summary.of(header, TOLD)
    assert summarise(journal).idle_share == pytest.approx(2 / 3)


def test_a_line_that_is_no_json_is_named(journal):
    edit(journal, lambda lines: lines.__setitem__(4, lines[4][:9]))
    with pytest.raises(JournalError, match=r"journal\.jsonl, line 5: not JSON"):
        summarise(journal)


@pytest.mark.parametrize(
    ("lost", "named", "problem"),
    [
        (1, 3, "task 1 is for client 0, which is not online"),
        (3, 4, "task 1 of client 0 ends, but no such task is open"),
        (4, 5, "the update of task 1 is used, but it never came"),
    ],
)
def test_a_journal_with_a_lost_line_is_refused_where_it_stops_to_make_sense(
    journal, lost, named, problem
):
    edit(journal, lambda lines: lines.pop(lost))
    with pytest.raises(JournalError, match=rf"journal\.jsonl, line {named}: {problem}"):
        summarise(journal)


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([Started(2.0), Timer(1.0, "t")], "line 3: time 1.0 comes after time 2.0"),
        ([Joined(0.0, 0, 1), Joined(1.0, 0, 1)], "line 3: client 0 joined, but is online already"),
        (
            [Joined(0.0, 0, 1), Train(0, 1, 0, WORK), Left(1.0, 0), Joined(2.0, 0, 1)],
            "line 5: client 0 joined with open tasks of before",
        ),
    ],
)
def test_messages_that_cannot_be_true_are_refused(header, messages, problem):
    with pytest.raises(JournalError, match=problem):
        Summary.of(header, messages)


def test_a_journal_that_is_not_there_is_said_so(tmp_path):
    with pytest.raises(JournalError, match="there is no journal"):
        summarise(tmp_path / "nothing.jsonl")
