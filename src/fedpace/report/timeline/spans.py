"""Spans of all clients: what each of them does from the run's first second to its last.

A client's time is cut at its own events: it joins, it leaves, it is given a task. Between two of these
a task goes from download to upload, waits, and then nothing is asked of its client. So spans cannot
overlap and nothing is left out, whatever the journal says.
"""

import numpy as np

from fedpace.report.timeline.columns import ClientSpans, Numbers, Times
from fedpace.report.timeline.phases import Fate, Phase, Waits
from fedpace.report.timeline.recorder import JournalTables
from fedpace.report.timeline.tasks import TaskTimes

WAITS_FOR = "waits for"
"""How reasons begin by which a client is let wait for others after its probe."""


def waits_of(tables: JournalTables) -> Waits:
    """What clients wait for, by what happens: groups and tiers leave traces, and so do buffers.

    A policy that answers most arrivals with work for somebody, without aggregating, lets nobody wait.
    """
    if tables.grouped:
        return Waits.GROUP
    at_once = tables.arrivals_answered + tables.arrivals_left == 0
    if at_once and len(tables.arrived):
        single = bool((tables.aggregations.array()["updates"] <= 1).all())
        return Waits.NOTHING if single else Waits.ROUND
    return Waits.NOTHING if tables.arrivals_answered > tables.arrivals_left else Waits.ROUND


def spans_of(tables: JournalTables, times: TaskTimes, clients: int, waits: Waits) -> ClientSpans:
    """The spans of clients 0 to clients - 1, sorted by client and time."""
    presence, tasks = tables.presence.array(), times.columns
    end_s = tables.length_s
    # Segments of one client's time, each from one of its own events to the next.
    own = np.arange(clients, dtype=np.int32)
    client = np.concatenate([own, presence["client"], tasks.client])
    line = np.concatenate([np.full(clients, -1), presence["line"], times.opened_line])
    start = np.concatenate([np.zeros(clients), presence["at"], _one_by_one(times)])
    online = np.concatenate([np.zeros(clients), presence["online"], np.ones(len(tasks))])
    task = np.concatenate([np.full(clients + len(presence), -1), np.arange(len(tasks))])
    order = np.lexsort((line, client))
    client, start, online, task = client[order], start[order], online[order], task[order]
    stop = np.append(start[1:], end_s)
    stop[np.append(client[1:] != client[:-1], True)] = end_s

    edges = np.empty((len(client), 8))
    edges[:, 0], edges[:, 1:7], edges[:, 7] = start, start[:, None], stop
    busy, row = task >= 0, task[task >= 0]
    wait_end = _wait_ends(tables, times, waits)
    inside = (tasks.computes, times.probed, times.told, tasks.uploads, tasks.closed, wait_end)
    for place, column in enumerate(inside, start=1):
        edges[busy, place] = column[row]
    np.clip(edges, start[:, None], stop[:, None], out=edges)
    np.maximum.accumulate(edges, axis=1, out=edges)

    wait = Phase.WAITS_GROUP if waits is Waits.GROUP else Phase.WAITS_ROUND
    of_task = (Phase.DOWNLOAD, Phase.COMPUTE, wait, Phase.COMPUTE, Phase.UPLOAD, wait)
    phase = np.empty((len(client), 7), dtype=np.uint8)
    phase[:, :6] = of_task
    phase[:, 6] = np.where(online == 1, Phase.NOT_SAMPLED, Phase.OFFLINE)
    kept = edges[:, 1:] > edges[:, :-1]
    whose, part = np.nonzero(kept)
    begin, over, what = edges[whose, part], edges[whose, part + 1], phase[whose, part]
    rows = np.where(part < 6, task[whose], -1).astype(np.int32)
    fates = np.append(tasks.fate, np.uint8(Fate.NONE))
    return _joined(
        ClientSpans(
            start=begin,
            end=over,
            client=client[whose].astype(np.int32),
            phase=what,
            round=_rounds_at(tables, begin),
            task=rows,
            used=fates[rows],
        )
    )


def _rounds_at(tables: JournalTables, at: Times) -> np.ndarray:
    """The round that is under way at each time; one that ends then is over."""
    ends = tables.rounds.array()["at"]
    return (np.searchsorted(ends, at, side="right") + 1).astype(np.int32)


def _one_by_one(times: TaskTimes) -> Times:
    """When each task has its client to itself: after those that the client had before it.

    Clients that hold several tasks at once are rare, so they are gone through one by one.
    """
    tasks = times.columns
    opened = tasks.opened.copy()
    order = np.argsort(tasks.client, kind="stable")
    client, begin, over = tasks.client[order], opened[order], tasks.closed[order]
    overlaps = (client[1:] == client[:-1]) & (begin[1:] < over[:-1])
    for one in np.unique(client[1:][overlaps]):
        free_at = 0.0
        for row in order[client == one]:
            opened[row] = max(opened[row], free_at)
            free_at = max(free_at, tasks.closed[row])
    return opened


def _wait_ends(tables: JournalTables, times: TaskTimes, waits: Waits) -> Times:
    """When the client of each task, after its end, no longer waits for others."""
    tasks = times.columns
    if waits is Waits.NOTHING:
        return tasks.closed.copy()
    rounds = tables.rounds.array()
    if waits is Waits.ROUND:
        return _times_after(rounds["line"], rounds["at"], times.closed_line, tables.length_s)
    made = tables.aggregations.array()
    ends = tasks.closed.copy()
    came = np.isin(tasks.fate, (Fate.USED, Fate.UNDONE, Fate.WAITING, Fate.DROPPED))
    lines = np.where(tasks.fate == Fate.WAITING, tables.line + 1, times.used_line)
    # The aggregation that used it stands at its own line, and so do drops, at the time of the event.
    used_at = _times_after(made["line"], made["at"], lines - 1, tables.length_s)
    ends[came & (tasks.fate != Fate.DROPPED)] = used_at[came & (tasks.fate != Fate.DROPPED)]
    told = [number for name, number in tables.reasons.items() if name.startswith(WAITS_FOR)]
    ends[np.isin(tasks.reason, told)] = tables.length_s  # until it is given the next task
    return ends


def _times_after(lines: Numbers, at: Times, after: Numbers, last: float) -> Times:
    """The time of the first of `lines` behind each of `after`; `last` where none follows."""
    found: Times = np.append(at, last)[np.searchsorted(lines, after, side="right")]
    return found


def _joined(spans: ClientSpans) -> ClientSpans:
    """The same spans, those that say the same and follow each other as one."""
    if not len(spans):
        return spans
    columns = (spans.client, spans.phase, spans.task)
    new = np.ones(len(spans), dtype=bool)
    new[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    first = np.flatnonzero(new)
    last = np.append(first[1:] - 1, len(spans) - 1)
    return ClientSpans(
        spans.start[first],
        spans.end[last],
        spans.client[first],
        spans.phase[first],
        spans.round[first],
        spans.task[first],
        spans.used[first],
    )
