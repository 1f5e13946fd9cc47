"""The part of report.json about time: why rounds took as long, and what clients did and gave.

docs/report.md lists the keys. All values are plain JSON; None stands where there is nothing to say.
"""

import math
from typing import Any

import numpy as np

from fedpace.core.evaluation.fairness import SPEED_GROUPS, speed_groups
from fedpace.core.model import ModelProfile
from fedpace.report.timeline.columns import Numbers, RoundColumns, Timeline, Times
from fedpace.report.timeline.phases import AT_WORK, THROWN_AWAY, WAITS, Cause, Fate, Phase
from fedpace.report.timeline.sentences import explain_round
from fedpace.report.timeline.totals import mean_by_client, seconds_by_phase, work_by_fate

MOST_ROUNDS = 2_000
"""Rounds in report.json; of more the longest are kept."""
MOST_CLIENTS = 2_000
"""Clients in report.json; of more there are only groups and totals."""


def explain_timeline(timeline: Timeline, model: ModelProfile) -> dict[str, Any]:
    """What report.json says of a run's time."""
    seconds, fates = seconds_by_phase(timeline), work_by_fate(timeline)
    numbers = client_numbers(timeline, model)
    few = timeline.clients <= MOST_CLIENTS
    return {
        "length_s": timeline.length_s,
        "clients": timeline.clients,
        "rounds": _rounds(timeline.rounds),
        "totals": _totals(seconds, fates, timeline),
        "by_client": {
            "seconds": {phase.text: _plain(seconds[:, phase]) for phase in Phase},
            "thrown_away_s": _plain(fates[:, list(THROWN_AWAY)].sum(axis=1)),
            **{name: _plain(values) for name, values in numbers.items()},
        }
        if few
        else None,
        "by_speed": _by_speed(numbers, seconds, fates),
        "evenness": {
            "updates": evenness(numbers["updates_an_hour"]),
            "samples": evenness(numbers["samples_an_hour"]),
        },
    }


def client_numbers(timeline: Timeline, model: ModelProfile) -> dict[str, Times]:
    """Numbers of every client that compare between policies; nan where there is none.

    updates_an_hour, samples_an_hour: used updates, and samples gone through for them, an hour of the
    run. sample_s: seconds a sample, as measured. depth: share of the model's layers in a result;
    epochs, batches, batch_size: of a result.
    """
    tasks, count = timeline.tasks, timeline.clients
    used, came = tasks.fate == Fate.USED, tasks.steps > 0
    hours = timeline.length_s / 3600 or math.nan
    samples = np.zeros(count)
    np.add.at(samples, tasks.client[used], tasks.trained[used])
    return {
        "sample_s": mean_by_client(timeline, tasks.sample_s),
        "updates_an_hour": np.bincount(tasks.client[used], minlength=count) / hours,
        "samples_an_hour": samples / hours,
        "depth": mean_by_client(timeline, tasks.depth / model.depth, came),
        "epochs": mean_by_client(timeline, tasks.epochs, came),
        "batches": mean_by_client(timeline, tasks.steps, came),
        "batch_size": mean_by_client(timeline, tasks.batch_size, came),
    }


def evenness(values: Times) -> float | None:
    """Jain's index: 1 where all clients give the same, 1 / clients where one gives everything."""
    known = values[np.isfinite(values)]
    squares = float(np.square(known).sum())
    index = float(known.sum()) ** 2 / (len(known) * squares) if squares > 0 else None
    return None if index is None else min(index, 1.0)  # rounding


def _rounds(rounds: RoundColumns) -> dict[str, Any]:
    rows: Numbers = np.arange(len(rounds))
    if len(rounds) > MOST_ROUNDS:
        longest = np.argsort(rounds.start - rounds.end, kind="stable")[:MOST_ROUNDS]
        rows = np.sort(longest)
    return {
        "count": len(rounds),
        "round": (rows + 1).tolist(),
        "start_s": _plain(rounds.start[rows]),
        "end_s": _plain(rounds.end[rows]),
        "updates": rounds.updates[rows].tolist(),
        "late": rounds.late[rows].tolist(),
        "cause": [Cause(one).text for one in rounds.cause[rows]],
        "client": [None if one < 0 else one for one in rounds.client[rows].tolist()],
        "cause_s": _plain(rounds.cause_s[rows]),
        "last_client": [None if one < 0 else one for one in rounds.last[rows].tolist()],
        "waited_share": _plain(rounds.waited[rows]),
        "why": [explain_round(rounds, int(row)) for row in rows],
    }


def _totals(seconds: Times, fates: Times, timeline: Timeline) -> dict[str, Any]:
    """Sums over all clients: seconds by phase, work by what became of it, rounds by cause."""
    online_s = float(seconds.sum() - seconds[:, Phase.OFFLINE].sum())
    work_s = float(seconds[:, list(AT_WORK)].sum())
    thrown_s = float(fates[:, list(THROWN_AWAY)].sum())
    counts = np.bincount(timeline.tasks.fate, minlength=len(Fate))
    causes, rounds = dict[str, dict[str, float]](), timeline.rounds
    for cause in Cause:
        mine = rounds.cause == cause
        if mine.any():
            causes[cause.text] = {
                "rounds": int(mine.sum()),
                "seconds": float((rounds.end - rounds.start)[mine].sum()),
            }
    return {
        "seconds": {phase.text: float(seconds[:, phase].sum()) for phase in Phase},
        "waited_share": _share(float(seconds[:, list(WAITS)].sum()), online_s),
        "not_sampled_share": _share(float(seconds[:, Phase.NOT_SAMPLED].sum()), online_s),
        "thrown_away_share": _share(thrown_s, work_s),
        "work_s": {fate.text: float(fates[:, fate].sum()) for fate in Fate if counts[fate]},
        "tasks": {fate.text: int(counts[fate]) for fate in Fate if counts[fate]},
        "causes": causes,
    }


def _by_speed(
    numbers: dict[str, Times], seconds: Times, fates: Times
) -> dict[str, dict[str, float | None]] | None:
    """Means of the slow, the middle and the fast third of the clients whose speed is known."""
    known = np.flatnonzero(np.isfinite(numbers["sample_s"]))
    if not len(known):
        return None
    groups = np.array(speed_groups(numbers["sample_s"][known].tolist()))
    idle = (*WAITS, Phase.NOT_SAMPLED)
    found = {}
    for name in SPEED_GROUPS:
        mine = known[groups == name]
        if len(mine):
            means = {key: _mean(values[mine]) for key, values in numbers.items()}
            there = seconds[mine].sum() - seconds[mine, Phase.OFFLINE].sum()
            means["idle_share"] = _share(float(seconds[mine][:, list(idle)].sum()), float(there))
            means["thrown_away_s"] = _mean(fates[mine][:, list(THROWN_AWAY)].sum(axis=1))
            found[name] = {"clients": len(mine), **means}
    return found


def _mean(values: Times) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _plain(values: Times) -> list[float | None]:
    """Numbers for JSON, of six decimals: microseconds."""
    return [one if math.isfinite(one) else None for one in np.round(values, 6).tolist()]
