"""Traces for Perfetto: slices of a track never overlap, events are in order, every track has a name."""

import gzip
import json
from collections import defaultdict

import pytest

from fedpace.core.commands import Cancel, SetTimer
from fedpace.core.events import Timer
from fedpace.report.timeline.build import timeline_of
from fedpace.report.timeline.trace import SERVER, trace_of, write_trace
from tests.messages import evaluated
from tests.report.conftest import make_train
from tests.report.timeline.journals import begin, done, mean, tale, timeline
from tests.report.timeline.test_spans import run_of


def events_of(trace):
    return json.loads("".join(trace.lines))["traceEvents"]


def check_trace(events):
    """What a viewer takes for granted: order, names of tracks, no overlap on any of them."""
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    processes = {one["pid"] for one in events if one["name"] == "process_name"}
    timed = [one for one in events if one["ph"] != "M"]
    assert [one["ph"] for one in events[: len(events) - len(timed)]] == ["M"] * (
        len(events) - len(timed)
    )
    times = [one["ts"] for one in timed]
    assert times == sorted(times)
    ends = defaultdict(int)
    for one in timed:
        assert one["pid"] in processes
        assert isinstance(one["ts"], int)
        assert one["ts"] >= 0
        if one["ph"] == "C":
            assert all(isinstance(value, int | float) for value in one["args"].values())
            continue
        track = one["pid"], one["tid"]
        assert track in named
        if one["ph"] == "X":
            assert one["dur"] > 0
            assert one["ts"] >= ends[track]
            ends[track] = one["ts"] + one["dur"]


@pytest.mark.parametrize("policy", ["sync", "fedcompass", "fedbuff", "fedat"])
def test_a_trace_has_no_overlaps_and_every_second_of_every_client(policy, tmp_path):
    result = run_of(policy, tmp_path)
    found = timeline_of(result.journal.header, result.journal)
    trace = trace_of(found, policy)
    events = events_of(trace)
    check_trace(events)
    spent = defaultdict(int)
    for one in events:
        if one["ph"] == "X" and one["pid"] != SERVER:
            spent[one["pid"]] += one["dur"]
    assert set(spent.values()) == {round(found.length_s * 1e6)}
    assert len(spent) == found.clients
    rounds = [one for one in events if one["ph"] == "X" and one["pid"] == SERVER]
    assert len(rounds) == (found.rounds.end > found.rounds.start).sum()
    assert trace.words == ()


def small_run():
    one = tale(2)
    begin(one, [0, 1], SetTimer("deadline", 25.0))
    one.on(done(10.0, 0, 1))
    one.fact(evaluated(10.0, 0, 0.5))
    one.on(Timer(25.0, "deadline"), Cancel(1, 2, "late"), mean([1]), make_train(0, 3, 1))
    return timeline(one, 30.0)


def test_a_trace_says_what_was_thrown_away_and_why_a_round_took_as_long():
    events = events_of(trace_of(small_run(), "mine", "accuracy"))
    check_trace(events)
    names = {one["args"]["name"] for one in events if one["name"] == "process_name"}
    assert {"server", "client 0", "client 7"} <= names
    late = [one for one in events if one["name"] == "compute (late)"]
    assert [(one["pid"] - SERVER - 1, one["args"]["because"]) for one in late] == [(1, "late")]
    (round_,) = [one for one in events if one["name"] == "round 1"]
    assert round_["args"]["why"].startswith("25 s, because of a time that the policy set")
    counters = {(one["name"], one["ts"]): one["args"] for one in events if one["ph"] == "C"}
    assert counters["accuracy", 10_000_000] == {"accuracy": 0.5}
    assert counters["clients at work", 10_000_000] == {"clients at work": 1}
    assert counters["clients at work", 30_000_000] == {"clients at work": 0}


def test_a_large_trace_has_some_of_the_clients_and_says_so(monkeypatch):
    monkeypatch.setattr("fedpace.report.timeline.thinning.FEWEST_LANES", 3)
    found = small_run()
    trace = trace_of(found, "mine", most_spans=2)
    events = events_of(trace)
    check_trace(events)
    clients = {one["pid"] for one in events if one["ph"] == "X" and one["pid"] != SERVER}
    assert len(clients) == 3
    assert 1 + SERVER + 1 in clients  # who was late is to blame
    assert "3 of 8 clients are in it" in trace.words[0]
    assert json.loads("".join(trace.lines))["otherData"]["left out"] == trace.words[0]


def test_a_trace_is_compressed_by_its_name_and_the_same_every_time(tmp_path):
    trace = trace_of(small_run(), "mine")
    for name in ("a.json", "a.json.gz", "b.json.gz"):
        write_trace(trace, tmp_path / name)
    packed = (tmp_path / "a.json.gz").read_bytes()
    assert packed == (tmp_path / "b.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "a.json").read_bytes()
    check_trace(json.loads(gzip.decompress(packed))["traceEvents"])


def test_a_run_in_which_nothing_happened_has_a_trace():
    check_trace(events_of(trace_of(timeline(tale(0)), "mine")))
