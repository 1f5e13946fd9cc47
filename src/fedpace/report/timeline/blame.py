"""Blame: what held each round up, by the way back from its end to its beginning.

A round ends with an event: the last update that was needed, a timer, a task that failed. That task was
given out, or that timer set, because of an event before it, and so on back to the round's start: its
critical path. Of the path's pieces the one is to blame that took longest beyond what it took the
others of the round (the median of its used updates), so that a slow link is named even where everybody
computes for longer than it sends. Where nothing takes a tenth of the round longer than it takes the
others, it is the longest piece.

A policy that probes clients may set a round's time by one of them. Where it is just what a client
needs by the profile that it gave in this round, that client's pace is the cause.
"""

import numpy as np

from fedpace.report.timeline.columns import ClientSpans, RoundColumns, Times
from fedpace.report.timeline.phases import WAITS, Cause, Fate, Phase, Waits
from fedpace.report.timeline.recorder import ARRIVED, FAILED, JOINED, PROFILED, TIMER, JournalTables
from fedpace.report.timeline.tasks import TaskTimes
from fedpace.report.timeline.totals import seconds_between

Piece = tuple[Cause, int, float]
"""What a piece of the path was, whose (-1: nobody's), and its seconds."""
PIECES = (Cause.DOWNLOAD, Cause.COMPUTE, Cause.PLAN, Cause.UPLOAD)
NOTABLE = 0.1
"""Share of a round by which a piece must be longer than that of others to be the cause for it."""
LIKE, LIKE_REAL = 1e-6, 0.02
"""How near the time of a round must be to what a client needs, as a share; on a real clock."""
_PROFILE = np.array([Phase.DOWNLOAD, Phase.COMPUTE, Phase.UPLOAD], dtype=np.uint8)
_PHASES = np.array([Phase.DOWNLOAD, Phase.COMPUTE, Phase.WAITS_ROUND, Phase.UPLOAD], dtype=np.uint8)


def blamed_rounds(
    tables: JournalTables, times: TaskTimes, spans: ClientSpans, waits: Waits, slack: float = 0.0
) -> RoundColumns:
    """The rounds of a journal, each with its cause. slack: share that a network adds to times."""
    rounds, tasks = tables.rounds.array(), times.columns
    count, end = len(rounds), rounds["at"].astype(np.float64)
    start = _starts(tables, times, waits)
    usual = _medians(times, count)
    cause = np.zeros(count, dtype=np.uint8)
    client = np.full(count, -1, dtype=np.int32)
    last, phase = client.copy(), np.zeros(count, dtype=np.uint8)
    cause_s = np.zeros(count)

    came = np.flatnonzero(rounds["kind"] == ARRIVED)
    row = rounds["trigger"][came]
    pieces = _pieces(times, row, start[came], end[came])
    last[came], phase[came] = tasks.client[row], _PHASES[pieces.argmax(axis=1)]
    # Most often the path is that one task's, which was given out when the round began or before.
    simple = (tasks.opened[row] <= start[came]) & (times.given[row] <= start[came])
    at, weight = came[simple], pieces[simple] - usual[came[simple]]
    notable = weight.max(axis=1) > NOTABLE * (end - start)[at]
    best = np.where(notable, weight.argmax(axis=1), pieces[simple].argmax(axis=1))
    cause[at] = np.array(PIECES, dtype=np.uint8)[best]
    client[at], cause_s[at] = last[at], pieces[simple][np.arange(len(at)), best]

    paths = CriticalPaths(tables, times)
    for one in np.setdiff1d(np.arange(count), at).tolist():
        path = paths.of(one, float(start[one]))
        if path:
            cause[one], client[one], cause_s[one] = _heaviest(
                path, usual[one], float(end[one] - start[one])
            )
    if waits is Waits.NOTHING:
        filled = rounds["updates"] >= 2
        cause[filled], client[filled] = Cause.BUFFER, -1
        cause_s[filled] = (end - start)[filled]

    if waits is Waits.ROUND:
        found = _paces(tables, times, start, slack)
        paced = found[found["whole"] | (cause[found["round"]] == Cause.DEADLINE)]
        at = paced["round"]
        cause[at], client[at], phase[at] = Cause.PACE, paced["client"], paced["phase"]
        cause_s[at] = (end - start)[at]

    late, who = _late(times, rounds["line"])
    one_late = (cause == Cause.DEADLINE) & (late == 1)
    client[one_late] = who[one_late]
    return RoundColumns(
        start=start,
        end=end,
        updates=rounds["updates"].astype(np.int32),
        late=late,
        cause=cause,
        client=client,
        cause_s=cause_s,
        last=last,
        phase=phase,
        waited=_waited(spans, start, end),
    )


def _starts(tables: JournalTables, times: TaskTimes, waits: Waits) -> Times:
    """When each round began: with the end of the one before, or with its own group's first task."""
    rounds, tasks = tables.rounds.array(), times.columns
    before: Times = np.concatenate([[0.0], rounds["at"]])[: len(rounds)]
    if waits is not Waits.GROUP:
        return before
    first = np.full(len(rounds) + 1, np.inf)
    np.minimum.at(first, tasks.round, tasks.opened)
    own = np.where(np.isnan(rounds["group_at"]), first[1:], rounds["group_at"])
    first_at: Times = np.minimum(np.where(np.isfinite(own), own, before), rounds["at"])
    return first_at


def _seconds(times: TaskTimes) -> Times:
    """Seconds that each task took for each of `PIECES`."""
    tasks = times.columns
    waited = times.told - times.probed
    compute = tasks.uploads - tasks.computes - waited
    down, up = tasks.computes - tasks.opened, tasks.closed - tasks.uploads
    return np.stack([down, compute, waited, up], axis=1)


def _medians(times: TaskTimes, rounds: int) -> Times:
    """For each round the median seconds of each of `PIECES` over the updates that it used."""
    used = np.flatnonzero(times.columns.round > 0)
    whose = times.columns.round[used].astype(np.int64) - 1
    usual = np.zeros((rounds, len(PIECES)))
    if not len(used):
        return usual
    counts = np.bincount(whose, minlength=rounds)
    first = np.concatenate([[0], np.cumsum(counts)[:-1]])
    there = counts > 0
    for piece, values in enumerate(_seconds(times)[used].T):
        ordered = values[np.lexsort((values, whose))]
        low, high = (counts - 1) // 2, counts // 2
        for middle in (low, high):
            usual[there, piece] += ordered[(first + middle)[there]] / 2
    return usual


def _pieces(times: TaskTimes, row: np.ndarray, start: Times, end: Times) -> Times:
    """Seconds of each of `PIECES` that tasks spent between a start and an end."""
    tasks = times.columns
    columns = (tasks.opened, tasks.computes, times.probed, times.told, tasks.uploads, tasks.closed)
    edges = np.stack([column[row] for column in columns], axis=1)
    parts = np.diff(np.clip(edges, start[:, None], end[:, None]), axis=1)
    return np.stack([parts[:, 0], parts[:, 1] + parts[:, 3], parts[:, 2], parts[:, 4]], axis=1)


def _heaviest(path: list[Piece], usual: Times, length_s: float) -> Piece:
    """The piece that took longest beyond what is usual, or else the longest."""

    def weight(piece: Piece) -> float:
        cause, _, seconds = piece
        return seconds - float(usual[PIECES.index(cause)]) if cause in PIECES else seconds

    best = max(path, key=weight)
    return best if weight(best) > NOTABLE * length_s else max(path, key=lambda piece: piece[2])


class CriticalPaths:
    """Ways back from the ends of rounds, one event after the other."""

    def __init__(self, tables: JournalTables, times: TaskTimes) -> None:
        self._times = times
        self._rounds, self._timers = tables.rounds.array(), tables.timers.array()
        self._left: dict[int, list[float]] = {}
        presence = tables.presence.array()
        for row in presence[presence["online"] == 0]:
            self._left.setdefault(int(row["client"]), []).append(float(row["at"]))

    def of(self, index: int, start: float) -> list[Piece]:
        """The pieces of a round's path, the last first; index: of the round, from 0."""
        one = self._rounds[index]
        kind, row, at = int(one["kind"]), int(one["trigger"]), float(one["at"])
        path: list[Piece] = []
        while at > start:
            if kind in (ARRIVED, PROFILED, FAILED):
                times, since = self._times, float(self._times.given[row])
                if kind == ARRIVED and since > times.columns.opened[row]:
                    # It had waited for its work, so the way goes by what its work had waited for.
                    path += self._of_task(kind, row, max(since, start), at)
                    kind, row = int(times.given_kind[row]), int(times.given_trigger[row])
                else:
                    path += self._of_task(kind, row, start, at)
                    since = float(times.columns.opened[row])
                    kind, row = int(times.kind[row]), int(times.trigger[row])
                at = since
            elif kind == TIMER:
                timer = self._timers[row]
                since = float(timer["set_at"])
                path.append((Cause.DEADLINE, -1, at - max(since, start)))
                at, kind, row = since, int(timer["kind"]), int(timer["trigger"])
            else:
                if kind == JOINED:
                    since = max((left for left in self._left.get(row, ()) if left <= at), default=0.0)
                    path.append((Cause.OFFLINE, row, at - max(since, start)))
                break
        return [piece for piece in path if piece[2] > 0]

    def _of_task(self, kind: int, row: int, start: float, at: float) -> list[Piece]:
        tasks = self._times.columns
        client = int(tasks.client[row])
        if kind == FAILED:
            cause = Cause.OFFLINE if tasks.fate[row] == Fate.LEFT else Cause.FAILED
            return [(cause, client, at - max(float(tasks.opened[row]), start))]
        seconds = _pieces(self._times, np.array([row]), np.array([start]), np.array([at]))[0]
        return [(cause, client, float(one)) for cause, one in zip(PIECES, seconds, strict=True)]


def _paces(tables: JournalTables, times: TaskTimes, start: Times, slack: float) -> np.ndarray:
    """Rounds that a timer ended just when a client of theirs was due by its profile.

    Of each the nearest such client, and the phase that takes it longest. Times count from the round's
    start (whole), or, without the download, from when the timer was set.
    """
    rounds, timers, profiled = (one.array() for one in (tables.rounds, tables.timers, tables.profiled))
    kinds = [("round", np.int64), ("client", np.int32), ("phase", np.uint8), ("whole", np.bool_)]
    whose = np.searchsorted(rounds["at"], profiled["at"])
    inside = np.flatnonzero(whose < len(rounds))
    inside = inside[rounds["kind"][whose[inside]] == TIMER]
    if not len(inside):
        return np.empty(0, dtype=kinds)
    profiled, whose = profiled[inside], whose[inside]
    end, set_at = rounds["at"][whose], timers["set_at"][rounds["trigger"][whose]]
    parts = np.stack(
        [profiled["down_s"], profiled["batch_s"] * profiled["batches"], profiled["up_s"]], axis=1
    )
    needed = parts.sum(axis=1)
    stretched, like = 1 + slack, LIKE_REAL if slack else LIKE
    from_start = np.abs(needed * stretched / (end - start[whose]) - 1)
    from_set = np.abs((needed - parts[:, 0]) * stretched / np.maximum(end - set_at, 1e-12) - 1)
    near = np.flatnonzero((from_start <= like) | (from_set <= like))
    away = np.where(from_start <= like, from_start, 1 + from_set)  # the first is the usual
    near = near[np.lexsort((away[near], whose[near]))]
    _, first = np.unique(whose[near], return_index=True)
    best = near[first]
    found = np.empty(len(best), dtype=kinds)
    found["round"], found["phase"] = whose[best], _PROFILE[parts[best].argmax(axis=1)]
    found["whole"] = from_start[best] <= like
    found["client"] = times.columns.client[profiled["task"][best]]
    return found


def _late(times: TaskTimes, lines: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many tasks were late for each round, and the client of one of them, -1 for none."""
    tasks = times.columns
    late = np.flatnonzero(tasks.fate == Fate.LATE)
    whose = np.searchsorted(lines, times.closed_line[late])
    inside = whose < len(lines)
    counts = np.bincount(whose[inside], minlength=len(lines)).astype(np.int32)
    who = np.full(len(lines), -1, dtype=np.int32)
    who[whose[inside]] = tasks.client[late[inside]]
    return counts, who


def _waited(spans: ClientSpans, start: Times, end: Times) -> Times:
    """Share of online client-seconds between a start and an end that was spent waiting."""
    waits = seconds_between(spans, WAITS, start, end)
    there = seconds_between(spans, set(Phase) - {Phase.OFFLINE}, start, end)
    shares = np.divide(waits, there, out=np.zeros(len(start)), where=there > 0)
    return np.clip(shares, 0.0, 1.0)
