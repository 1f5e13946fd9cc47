"""Sums over spans: seconds by client and phase, and what all clients did between two times."""

from collections.abc import Collection

import numpy as np

from fedpace.report.timeline.columns import ClientSpans, Timeline, Times
from fedpace.report.timeline.phases import AT_WORK, Fate, Phase


def seconds_by_phase(timeline: Timeline) -> Times:
    """Seconds of each client (row) in each phase (column); every row adds up to the run's length."""
    spans = timeline.spans
    seconds = np.zeros((timeline.clients, len(Phase)))
    np.add.at(seconds, (spans.client, spans.phase), spans.end - spans.start)
    return seconds


def work_by_fate(timeline: Timeline) -> Times:
    """Seconds of each client (row) at work on tasks, by what became of them (column, of `Fate`)."""
    spans = timeline.spans
    work = np.isin(spans.phase, AT_WORK)
    seconds = np.zeros((timeline.clients, len(Fate)))
    np.add.at(seconds, (spans.client[work], spans.used[work]), (spans.end - spans.start)[work])
    return seconds


def seconds_between(spans: ClientSpans, phases: Collection[Phase], start: Times, end: Times) -> Times:
    """Client-seconds that all clients together spent in these phases, from each start to its end."""
    mine = np.isin(spans.phase, list(phases))
    return _seconds_until(spans, mine, end) - _seconds_until(spans, mine, start)


def _seconds_until(spans: ClientSpans, mine: np.ndarray, at: Times) -> Times:
    """Client-seconds of the chosen spans before each time: begun so far, less what is over since."""
    total = np.zeros(len(at))
    for sign, edges in ((1, spans.start[mine]), (-1, spans.end[mine])):
        edges = np.sort(edges)
        sums = np.concatenate([[0.0], np.cumsum(edges)])
        count = np.searchsorted(edges, at, side="right")
        total += sign * (count * at - sums[count])
    return total


def clients_at_work(spans: ClientSpans) -> tuple[Times, np.ndarray]:
    """Times at which the number of clients at work changes, and the number from then on."""
    work = np.isin(spans.phase, AT_WORK)
    times = np.concatenate([spans.start[work], spans.end[work]])
    steps = np.concatenate([np.ones(int(work.sum())), -np.ones(int(work.sum()))])
    at, whose = np.unique(times, return_inverse=True)
    counts = np.cumsum(np.bincount(whose.ravel(), steps, len(at))).round().astype(np.int64)
    changed = np.append(True, counts[1:] != counts[:-1]) if len(at) else np.zeros(0, dtype=bool)
    return at[changed], counts[changed]


def mean_by_client(timeline: Timeline, values: np.ndarray, rows: np.ndarray | None = None) -> Times:
    """The mean of the tasks' finite values for each client; nan where there are none.

    rows: mask of the tasks that count, by default all of them.
    """
    known = np.isfinite(values)
    if rows is not None:
        known &= rows
    client = timeline.tasks.client[known]
    total, counts = np.zeros(timeline.clients), np.bincount(client, minlength=timeline.clients)
    np.add.at(total, client, values[known])
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Times = np.where(counts > 0, total / counts, np.nan)
    return mean
