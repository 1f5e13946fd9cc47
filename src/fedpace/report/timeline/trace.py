"""A run's timeline as a trace for Perfetto: Chrome's JSON trace format, which its UI opens.

One process a client, with a track for each thing that it does; one process for the server, with its
rounds, aggregations and tests, and counters. Times are whole microseconds of the run's clock, so that
slices that follow each other meet exactly; shorter ones are left out. Slices of a track never overlap,
and events come in the order of their times.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpace.core.host import open_whole
from fedpace.report.timeline.columns import ClientSpans, Numbers, Timeline, Times, taken
from fedpace.report.timeline.phases import AT_WORK, THROWN_AWAY, Cause, Fate, Phase
from fedpace.report.timeline.sentences import explain_round
from fedpace.report.timeline.thinning import blamed_seconds, chosen_clients
from fedpace.report.timeline.totals import clients_at_work, mean_by_client

SERVER = 1
"""Process number of the server; client 0 has the next one."""
ROUNDS, AGGREGATIONS, TESTS = 100, 2, 3
"""Numbers of the server's tracks; overlapping rounds take more tracks from 100 on."""
MOST_SPANS = 500_000
"""Spans of clients in a trace: about 80 MB of JSON, a twentieth of it compressed."""
MOST_CLIENTS = 5_000
MOST_POINTS = 20_000
"""Points of the counter of clients at work; more are taken at even times."""
_US = 1e6
Event = tuple[int, str]
"""Time in microseconds, and the event's line."""


@dataclass(frozen=True, slots=True)
class RunTrace:
    """A trace as lines of its file. slices: of clients; words: what was left out, if anything was."""

    lines: list[str]
    slices: int
    words: tuple[str, ...]


def trace_of(
    timeline: Timeline, label: str, metric: str | None = None, most_spans: int = MOST_SPANS
) -> RunTrace:
    """The trace of a run. label: how the run is called; metric: name of the one that was tested."""
    words = list[str]()
    spans, tasks = timeline.spans, timeline.tasks
    counts = np.bincount(spans.client, minlength=timeline.clients)
    speeds = mean_by_client(timeline, tasks.sample_s)
    blamed_s = blamed_seconds(timeline.rounds, timeline.clients)
    clients = chosen_clients(counts, speeds, blamed_s, most_spans, MOST_CLIENTS)
    if len(clients) < timeline.clients:
        spans = taken(spans, np.isin(spans.client, clients))
        words.append(
            f"{len(clients):,} of {timeline.clients:,} clients are in it, evenly over speeds and with "
            "those to blame for most; the server's tracks are of all"
        )
    start, end = _micros(spans.start), _micros(spans.end)
    rows = np.flatnonzero(end > start)
    if len(rows) < len(spans):
        words.append(f"{len(spans) - len(rows):,} spans of less than a microsecond are left out")
    events = sorted(
        [*_slices(timeline, taken(spans, rows), start[rows], end[rows]), *_server(timeline, metric)],
        key=lambda event: event[0],
    )
    names = _names(spans.client[rows], spans.phase[rows], timeline)
    lines = [f"{text}," for text in (*names, *(text for _, text in events))]
    lines[-1] = lines[-1][:-1]
    about = {"run": label, "made by": "fedpace trace", "left out": "; ".join(words) or "nothing"}
    head = f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":['
    return RunTrace([head, *lines, "]}"], len(rows), tuple(words))


def write_trace(trace: RunTrace, path: Path) -> None:
    """Write a trace, compressed where the file's name ends in .gz."""
    with open_whole(path, text=False) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
                packed.writelines(f"{line}\n".encode() for line in trace.lines)
        else:
            file.writelines(f"{line}\n".encode() for line in trace.lines)


def _micros(seconds: Times) -> Numbers:
    return np.rint(seconds * _US).astype(np.int64)


def _slices(timeline: Timeline, spans: ClientSpans, start: Numbers, end: Numbers) -> Iterator[Event]:
    """What clients did, a slice each; work that was thrown away is named so, and why."""
    tasks = timeline.tasks
    numbers = np.append(tasks.number, -1)[spans.task].tolist()
    reasons = np.append(tasks.reason, 0)[spans.task].tolist()
    lost = set(map(int, THROWN_AWAY))
    working = set(map(int, AT_WORK))
    names = {int(phase): json.dumps(phase.text) for phase in Phase}
    thrown = {
        (int(phase), int(fate)): json.dumps(f"{phase.text} ({fate.text})")
        for phase in AT_WORK
        for fate in THROWN_AWAY
    }
    why = [json.dumps(reason) for reason in timeline.reasons]
    fates = [json.dumps(fate.text) for fate in Fate]
    columns = zip(
        start.tolist(), end.tolist(), spans.client.tolist(), spans.phase.tolist(),
        spans.round.tolist(), spans.used.tolist(), numbers, reasons, strict=True,
    )  # fmt: skip
    for begin, over, client, phase, round_, fate, task, reason in columns:
        wasted = phase in working and fate in lost
        name = thrown[phase, fate] if wasted else names[phase]
        args = f'"round":{round_}'
        if task >= 0:
            args += f',"task":{task},"became":{fates[fate]}'
            if wasted and reason:
                args += f',"because":{why[reason]}'
        yield (
            begin,
            f'{{"ph":"X","pid":{client + SERVER + 1},"tid":{phase + 1},"ts":{begin},'
            f'"dur":{over - begin},"name":{name},"cat":"client","args":{{{args}}}}}',
        )


def _server(timeline: Timeline, metric: str | None) -> Iterator[Event]:
    """The server's rounds, aggregations, tests and counters."""
    rounds, marks = timeline.rounds, timeline.server
    start, end = _micros(rounds.start), _micros(rounds.end)
    for index, lane in _lanes(start, end):
        args = {
            "why": explain_round(rounds, index),
            "cause": Cause(rounds.cause[index]).text,
            "client": int(rounds.client[index]),
            "updates": int(rounds.updates[index]),
            "waited": round(float(rounds.waited[index]), 4),
        }
        event = {"ph": "X", "pid": SERVER, "tid": ROUNDS + lane, "ts": int(start[index]),
                 "dur": int(end[index] - start[index]), "name": f"round {index + 1}", "cat": "server",
                 "args": args}  # fmt: skip
        yield int(start[index]), json.dumps(event)
    for at, slot, updates in zip(_micros(marks.aggregated), marks.slot, marks.updates, strict=True):
        args = {"updates": int(updates), "model": timeline.slots[slot]}
        yield int(at), _instant(int(at), AGGREGATIONS, f"aggregates {updates}", args)
    for at, value in zip(_micros(marks.tested), marks.value.tolist(), strict=True):
        known = {} if np.isnan(value) else {metric or "value": value}
        yield int(at), _instant(int(at), TESTS, "tests", known)
        if known:
            yield int(at), _counter(int(at), metric or "value", value)
    times, counts = clients_at_work(timeline.spans)
    if len(times) > MOST_POINTS:
        even = np.linspace(0, timeline.length_s, MOST_POINTS)
        counts = np.append(0, counts)[np.searchsorted(times, even, side="right")]
        times = even
    for at, count in zip(_micros(times), counts, strict=True):
        yield int(at), _counter(int(at), "clients at work", int(count))


def _lanes(start: Numbers, end: Numbers) -> Iterator[tuple[int, int]]:
    """Rounds that last, each with the first lane that is free when it begins."""
    free: list[int] = []
    for index in np.argsort(start, kind="stable").tolist():
        if end[index] <= start[index]:
            continue
        lane = next((lane for lane, at in enumerate(free) if at <= start[index]), len(free))
        free[lane : lane + 1] = [int(end[index])]
        yield index, lane


def _instant(at: int, track: int, name: str, args: dict[str, Any]) -> str:
    event = {"ph": "i", "s": "t", "pid": SERVER, "tid": track, "ts": at, "name": name, "args": args}
    return json.dumps(event)


def _counter(at: int, name: str, value: float) -> str:
    return json.dumps({"ph": "C", "pid": SERVER, "ts": at, "name": name, "args": {name: value}})


def _names(client: np.ndarray, phase: np.ndarray, timeline: Timeline) -> Iterator[str]:
    """The names of processes and tracks, the server's first."""
    yield _named("process_name", SERVER, 0, "server")
    yield _sorted("process_sort_index", SERVER, 0, 0)
    lanes = {lane for _, lane in _lanes(_micros(timeline.rounds.start), _micros(timeline.rounds.end))}
    for lane in sorted(lanes):
        yield _named(
            "thread_name", SERVER, ROUNDS + lane, "rounds" if not lane else f"rounds {lane + 1}"
        )
    yield _named("thread_name", SERVER, AGGREGATIONS, "aggregations")
    yield _named("thread_name", SERVER, TESTS, "tests")
    pairs = np.unique(client.astype(np.int64) * len(Phase) + phase)
    known = -1
    for one, what in zip((pairs // len(Phase)).tolist(), (pairs % len(Phase)).tolist(), strict=True):
        process = one + SERVER + 1
        if one != known:
            yield _named("process_name", process, 0, f"client {one}")
            yield _sorted("process_sort_index", process, 0, process)
            known = one
        yield _named("thread_name", process, what + 1, Phase(what).text)
        yield _sorted("thread_sort_index", process, what + 1, what + 1)


def _named(kind: str, process: int, track: int, name: str) -> str:
    args = json.dumps(name)
    return f'{{"ph":"M","pid":{process},"tid":{track},"name":"{kind}","args":{{"name":{args}}}}}'


def _sorted(kind: str, process: int, track: int, place: int) -> str:
    return f'{{"ph":"M","pid":{process},"tid":{track},"name":"{kind}","args":{{"sort_index":{place}}}}}'
