"""Large journals are analysed in a few times what their mere reading takes."""

import time
from dataclasses import replace

import numpy as np

from fedpace.core.commands import Aggregate
from fedpace.core.events import Joined, Started
from fedpace.core.facts import Finished
from fedpace.core.journal import Journal, read
from fedpace.report.timeline.build import timeline_at
from tests.report.conftest import make_header, make_train
from tests.report.timeline.journals import done
from tests.sizes import sizes


def write_rounds(path, clients, rounds):
    """A journal of rounds in which everybody takes part; client 0 is always last, by its upload."""
    header = make_header()
    header = replace(header, context=replace(header.context, clients=clients))
    rng, now, task = np.random.default_rng(0), 0.0, 0
    with Journal(path, header) as journal:
        for client in range(clients):
            journal.write(Joined(0.0, client, 10))
        journal.write(Started(0.0))
        for version in range(rounds):
            first = task + 1
            for client in range(clients):
                task += 1
                journal.write(make_train(client, task, version))
            order = [*rng.permutation(np.arange(1, clients)).tolist(), 0]
            ends = [*np.sort(rng.uniform(15, 60, clients - 1)).tolist(), 100.0]
            for client, end in zip(order, ends, strict=True):
                speeds = {"up_s": 60.0 if client == 0 else 2.0}
                journal.write(done(now + end, client, first + client, version, speeds))
            now += 100.0
            journal.write(Aggregate(tuple(range(first, task + 1)), (1.0,) * clients))
        journal.write(Finished(now, "over"))


@sizes("size", (50, 40), (1000, 1000))
def test_a_journal_is_analysed_in_a_few_times_what_its_reading_takes(size, tmp_path):
    path = tmp_path / "journal.jsonl"
    write_rounds(path, *size)
    began = time.process_time()
    messages = sum(1 for _ in read(path)[1])
    read_s = time.process_time() - began
    began = time.process_time()
    found = timeline_at(path)
    took_s = time.process_time() - began
    clients, rounds = size
    assert len(found.tasks) == clients * rounds
    assert len(found.spans) == clients * rounds * 4 - rounds  # the last one does not wait
    assert set(found.rounds.client.tolist()) == {0}
    words = f"read in {read_s:.2f} s, analysed in {took_s:.2f} s with reading"
    print(f"{messages:,} lines: {words}")  # noqa: T201
    assert took_s < 5 * read_s + 0.5
