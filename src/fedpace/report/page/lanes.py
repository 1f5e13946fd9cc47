"""The timeline of a run as columns for a page, thinned where it would be too large for one.

A lane's spans follow each other without gaps, so their starts are enough. Times are counted in ticks,
fine enough for any screen; a span shorter than a tick is left out. Of more clients than there is room
for some are drawn, evenly over speeds, those to blame for most among them.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpace.report.page.packing import pack_columns
from fedpace.report.timeline.columns import Timeline, taken
from fedpace.report.timeline.phases import AT_WORK, THROWN_AWAY, Fate, Phase
from fedpace.report.timeline.sentences import explain_round
from fedpace.report.timeline.thinning import MOST_BLAMED, blamed_seconds, chosen_clients

MOST_SPANS = 4_500_000
"""Spans on a page, of all its timelines: about 9 MB of it."""
MOST_LANES = 5_000
FINE, COARSE = 2**26, 2**22
"""Ticks of a run; coarse ones where there are many spans, since finer ones compress badly."""
FEW_SPANS = 300_000
MOST_ROUNDS = 200_000
"""Rounds on a page; of more the longest of each few are drawn."""


@dataclass(frozen=True, slots=True)
class PackedLanes:
    """A timeline for a page: `entry` is its JSON, `spans` counts against the page's limit."""

    entry: dict[str, Any]
    spans: int


def pack_lanes(
    timeline: Timeline, speeds: np.ndarray, most_spans: int = MOST_SPANS, most_rounds: int = MOST_ROUNDS
) -> PackedLanes:
    """Pack a timeline. speeds: seconds a sample of each client, or nan."""
    words = list[str]()
    number = _kept_rounds(timeline, most_rounds)
    rounds = taken(timeline.rounds, number - 1)
    if len(rounds) < len(timeline.rounds):
        words.append(
            f"{len(rounds):,} of {len(timeline.rounds):,} rounds are drawn: of neighbours the longest."
        )
    counts = np.bincount(timeline.spans.client, minlength=timeline.clients)
    blamed_s = blamed_seconds(timeline.rounds, timeline.clients)
    clients = chosen_clients(counts, speeds, blamed_s, most_spans, MOST_LANES)
    if len(clients) < timeline.clients:
        words.append(
            f"{len(clients):,} of {timeline.clients:,} clients are drawn, evenly over speeds and with "
            "those to blame for most; rounds and their reasons are of all."
        )
    ticks = FINE if counts[clients].sum() <= FEW_SPANS else COARSE
    tick_s = _tick(timeline.length_s, ticks)
    if counts[clients].sum() > most_spans:
        tick_s = max(tick_s, _coarse_tick(timeline, len(clients) / timeline.clients, most_spans))
    spans = _quantised(timeline, clients, tick_s)
    while len(spans["start"]) > most_spans:
        tick_s *= 1.5
        spans = _quantised(timeline, clients, tick_s)
    left_out = int(counts[clients].sum()) - len(spans["start"])
    if left_out:
        words.append(f"{left_out:,} spans of less than {tick_s:.2g} s are left out.")

    def at(times: np.ndarray) -> np.ndarray:
        return np.rint(times / tick_s).astype(np.int64)

    sentences = [explain_round(rounds, index) for index in range(len(rounds))]
    busy = np.isin(timeline.spans.phase, AT_WORK)
    length = timeline.spans.end - timeline.spans.start
    busy_s = np.bincount(timeline.spans.client[busy], length[busy], timeline.clients)
    columns = {
        "lane.client": clients,
        "lane.spans": spans.pop("lane.spans"),
        "lane.speed": speeds[clients],
        "lane.blamed": blamed_s[clients],
        "lane.busy": busy_s[clients],
        **spans,
        "round.start": at(rounds.start),
        "round.end": at(rounds.end),
        "round.updates": rounds.updates,
        "round.late": rounds.late,
        "round.cause": rounds.cause,
        "round.client": rounds.client + 1,
        "round.cause_s": at(rounds.cause_s),
        "round.last": rounds.last + 1,
        "round.waited": np.rint(10_000 * rounds.waited).astype(np.int64),
        "round.number": number,
        "round.text": np.frombuffer("\n".join(sentences).encode(), np.uint8),
    }
    close = ("lane.client", "start", "round.start", "round.end", "round.number")
    entry = {
        "length_s": max(timeline.length_s, tick_s),
        "tick_s": tick_s,
        "clients": timeline.clients,
        "phases": [phase.text for phase in Phase],
        "fates": [fate.text for fate in Fate],
        "thrown": [int(fate) for fate in THROWN_AWAY],
        "used": np.unique(columns["phase"]).tolist(),
        "causes": np.unique(rounds.cause).tolist(),
        "thrown_used": bool(np.isin(columns["fate"], THROWN_AWAY).any()),
        "words": words,
        "blamed": _most_blamed(timeline, blamed_s),
        "packed": pack_columns(columns, close),
    }
    return PackedLanes(entry, len(columns["start"]))


def _kept_rounds(timeline: Timeline, most: int) -> np.ndarray:
    """Numbers, from 1, of the rounds that are drawn: all, or the longest of each few neighbours."""
    count = len(timeline.rounds)
    if count <= most:
        return np.arange(1, count + 1)
    few = -(-count // most)
    lasts = np.full(few * -(-count // few), -1.0)
    lasts[:count] = timeline.rounds.end - timeline.rounds.start
    longest = lasts.reshape(-1, few).argmax(axis=1) + few * np.arange(len(lasts) // few)
    return np.asarray(longest + 1)


def _tick(length_s: float, ticks: int) -> float:
    """The smallest 1, 2 or 5 times a power of ten of which a run has no more than `ticks`."""
    if not length_s > 0:
        return 1.0
    least = length_s / ticks
    power = 10.0 ** math.floor(math.log10(least))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= least)


def _coarse_tick(timeline: Timeline, share: float, most_spans: int) -> float:
    """A tick that is about long enough for that many spans of a share of the clients to be left.

    A span of half a tick is left with a chance of one half; an even sample of spans is enough to tell.
    """
    spans = timeline.spans
    step = max(1, len(spans) // 100_000)
    lengths = (spans.end - spans.start)[::step]
    low, high = 0.0, max(timeline.length_s, 1e-9)
    for _ in range(50):
        middle = (low + high) / 2
        left = step * share * float(np.minimum(lengths / middle, 1.0).sum())
        low, high = (middle, high) if left > most_spans else (low, middle)
    return high


def _most_blamed(timeline: Timeline, blamed_s: np.ndarray) -> list[dict[str, Any]]:
    mine = timeline.rounds.client[timeline.rounds.client >= 0]
    rounds = np.bincount(mine, minlength=timeline.clients)
    order = np.argsort(-blamed_s, kind="stable")[:MOST_BLAMED]
    return [
        {"client": int(one), "rounds": int(rounds[one]), "seconds": float(blamed_s[one])}
        for one in order
        if rounds[one]
    ]


def _quantised(timeline: Timeline, clients: np.ndarray, tick_s: float) -> dict[str, np.ndarray]:
    """Spans of some clients with starts in ticks, without those that are shorter than one."""
    spans = timeline.spans
    kept = np.zeros(timeline.clients, dtype=bool)
    kept[clients] = True
    rows = np.flatnonzero(kept[spans.client])
    start = np.rint(spans.start[rows] / tick_s).astype(np.int64)
    client = spans.client[rows]
    last = np.append(client[1:] != client[:-1], True)[: len(rows)]
    following = np.append(start[1:], 0)[: len(rows)]
    following[last] = round(timeline.length_s / tick_s)
    there = following > start
    rows, start, client = rows[there], start[there], client[there]
    return {
        "start": start,
        "phase": spans.phase[rows],
        "fate": spans.used[rows],
        "lane.spans": np.bincount(client, minlength=timeline.clients)[clients],
    }
