"""Runs of a folder as they come, go on and end."""

import json
import os
import re

import numpy as np
import pytest

from fedpace.core.journal import JOURNAL, read
from fedpace.report.bias.data import CLIENT_DATA, ClientData
from fedpace.report.bias.weights import weights_by_client
from fedpace.report.live.page import live_document
from fedpace.report.live.runs import FollowedRuns, find_runs
from fedpace.report.summary import summarise


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def lock(folder, pid):
    (folder / ".lock").write_text(json.dumps({"pid": pid, "command": "x", "since": "y"}))


def test_counts_of_a_growing_run_are_those_of_its_journal_so_far(tmp_path, journal, grow):
    runs, header = FollowedRuns(tmp_path, Clock()), journal.index(b"\n") + 1
    grow(header - 5)
    runs.advance()
    assert runs.groups() == {}
    for end in (*range(header, len(journal), 1500), len(journal)):
        part = grow(end)
        runs.advance()
        ((found,),) = runs.groups().values()
        assert found == summarise(part, unfinished=True)
    assert found.finished == "5 rounds are over"


def test_a_run_says_whether_somebody_writes_it(tmp_path, journal, grow):
    clock = Clock()
    runs = FollowedRuns(tmp_path, clock)
    assert runs.state().text == "nothing has begun yet"
    assert not runs.state().over
    grow(len(journal) // 2)
    lock(tmp_path, os.getpid())
    clock.now = 5.0
    runs.advance()
    assert re.fullmatch(r"under way at round \d/5", runs.state().text)
    lock(tmp_path, 2**22 + 1)  # of a process that was killed
    clock.now = 10.0
    assert runs.state().text.startswith("stopped at round ")
    assert not runs.state().over
    part = grow(len(journal))
    os.replace(part, tmp_path / JOURNAL)
    clock.now = 15.0
    runs.advance()
    assert runs.state().text == "over: 5 rounds are over"
    assert runs.state().over


def test_runs_of_a_comparison_are_found_as_they_begin(tmp_path, journal, grow):
    clock = Clock()
    runs = FollowedRuns(tmp_path, clock)
    lock(tmp_path, os.getpid())
    grow(len(journal), tmp_path / "sync" / "seed-3")
    runs.advance()
    assert runs.state().ended == 1
    assert not runs.state().over  # more may come
    clock.now = 10.0
    other = tmp_path / "late" / "seed-3" / f"{JOURNAL}.part"
    other.parent.mkdir(parents=True)
    other.write_bytes(journal[: len(journal) // 2].replace(b'"label":"sync"', b'"label":"late"'))
    runs.advance()
    assert list(runs.groups()) == ["sync", "late"]
    assert runs.state().text == "under way: 1 of 2 runs are over"
    assert runs.of(runs.groups()["late"][0]).folder == other.parent


def test_a_resumed_run_is_counted_anew(tmp_path, journal, grow):
    runs = FollowedRuns(tmp_path, Clock())
    grow(len(journal))
    runs.advance()
    grow(len(journal) // 2, start=len(journal) // 3)
    runs.advance()
    ((found,),) = runs.groups().values()
    assert found == summarise(tmp_path / f"{JOURNAL}.part", unfinished=True)


def test_a_damaged_journal_is_named_and_mended_ones_go_on(tmp_path, journal, grow):
    runs, part = FollowedRuns(tmp_path, Clock()), grow(len(journal) // 2)
    runs.advance()
    with part.open("ab") as file:
        file.write(b"\nnothing\n")
    runs.advance()
    assert "not JSON" in runs.state().text
    part.write_bytes(journal)
    runs.advance()
    assert runs.state().ended == 1


def test_timelines_of_the_largest_journals_are_left_out(tmp_path, journal, grow, monkeypatch):
    monkeypatch.setattr("fedpace.report.live.runs.MOST_BYTES", int(1.2 * len(journal)))
    grow(len(journal), tmp_path / "a")
    other = tmp_path / "b" / f"{JOURNAL}.part"
    other.parent.mkdir()
    other.write_bytes(journal[: len(journal) // 2].replace(b'"label":"sync"', b'"label":"half"'))
    runs = FollowedRuns(tmp_path, Clock())
    runs.advance()
    assert [run.tables is None for run in runs.runs.values()] == [True, False]
    document = live_document(runs)
    assert [one["label"] for one in document["labels"]] == ["sync", "half"]
    assert [one["run"] for one in document["timelines"]] == [1]


@pytest.mark.parametrize("spool", [False, True])
def test_what_lies_in_a_runs_own_folder_is_no_other_run(tmp_path, grow, spool):
    grow(100, tmp_path / "a")
    if spool:
        grow(100, tmp_path / "a" / "spool")
    assert find_runs(tmp_path) == [tmp_path / "a"]
    assert find_runs(tmp_path / "nowhere") == []


def test_whose_data_counts_is_shown_as_the_run_grows(tmp_path, journal, grow):
    runs = FollowedRuns(tmp_path, Clock())
    grow(journal.index(b"\n") + 1)
    runs.advance()
    assert live_document(runs)["bias"] is None  # nothing has been aggregated
    ClientData(np.arange(1.0, 7.0), np.eye(6, 2, dtype=np.int64)).write(tmp_path / CLIENT_DATA)
    part = grow(len(journal))
    runs.advance()
    bias = live_document(runs)["bias"]
    assert (bias["speeds"], bias["classes"]) == (["slow", "middle", "fast"], ["0", "1"])
    header, messages = read(part)
    expected = weights_by_client(header, messages)
    slow = [expected.weights[client] for client in (4, 5)]
    share = sum(slow) / sum(expected.weights.values())
    assert bias["labels"][0]["speed"][0][2] == pytest.approx(share)
