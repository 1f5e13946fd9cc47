"""What is kept of a run of a table: enough to make the table with other targets without running it."""

from dataclasses import asdict
from typing import Any

from fedpace.core.evaluation.fairness import Fairness
from fedpace.core.evaluation.metric import ACCURACY, MetricInfo, find_metric
from fedpace.report.summary import Summary, Track

MOST_POINTS = 150
"""Tests of a curve that are kept, besides those that are better than all before them."""

LEAST_KEPT = 0.00005
"""Participations below this are kept as none: four decimals are."""

Entry = dict[str, Any]


def entry_of(summary: Summary, metric: str | None = None) -> Entry:
    """What is kept of a run: its curve, thinned, and its numbers. metric: by default the main one."""
    main = summary.main if metric is None else find_metric(summary.metrics, metric, "metric")
    track = thinned(summary.metric(metric), main) if summary.metric(metric) else []
    fairness = summary.fairness
    return {
        "metric": main.name,
        "sign": 1 if main.higher_is_better else -1,
        "times": [round(at, 2) for at, _ in track],
        "values": [round(value, 5) for _, value in track],
        "final": _short(summary.final(metric)),
        "best": _short(summary.best(metric)),
        "end_s": round(summary.end_s, 2),
        "finished": summary.finished,
        "diverged": None if summary.diverged is None else list(summary.diverged),
        "rounds": summary.rounds,
        "tasks": summary.tasks,
        "arrived": summary.arrived,
        "clients": round(summary.mean_clients, 2),
        "participation": _short(summary.mean_participation),
        "left_out": _short(summary.left_out),
        "participations": [round(share, 4) for share in summary.participation.values()],
        "idle": _short(summary.idle_share),
        "staleness": _short(summary.mean_staleness),
        "depth": _short(summary.mean_depth_share),
        "down_bytes": summary.down_bytes,
        "up_bytes": summary.up_bytes,
        "samples": sum(summary.samples.values()),
        "fairness": None if fairness is None else _plain(fairness),
        "precision": summary.precision,
    }


def summary_of(entry: Entry) -> Summary:
    """A summary with what was kept of a run, for whoever judges summaries."""
    metric = metric_of(entry)
    track = list(zip(entry["times"], entry["values"], strict=True))
    diverged = entry["diverged"]
    return Summary(
        policy="",
        label="",
        seed=0,
        metrics=(metric,),
        values={metric.name: track},
        money=None,
        values_by_money={},
        rounds=entry["rounds"],
        empty_rounds=0,
        clients_per_round=[],
        round_times=[],
        participation={},
        finished=entry["finished"],
        end_s=entry["end_s"],
        idle_share=entry["idle"],
        down_bytes=entry["down_bytes"],
        up_bytes=entry["up_bytes"],
        tasks=entry["tasks"],
        arrived=entry["arrived"],
        failed=0,
        dropped=0,
        cancelled={},
        mean_staleness=entry["staleness"],
        mean_depth=None,
        mean_depth_share=entry["depth"],
        diverged=None if diverged is None else (int(diverged[0]), float(diverged[1])),
    )


def metric_of(entry: Entry) -> MetricInfo:
    """The metric of a run's curve."""
    if entry["metric"] == ACCURACY.name:
        return ACCURACY
    return MetricInfo(entry["metric"], entry.get("sign", 1) > 0)


def thinned(track: Track, metric: MetricInfo, most: int = MOST_POINTS) -> Track:
    """The tests that are better than all before them, the first and the last, and some of the others.

    The time to any target is that of the whole track.
    """
    best: float | None = None
    records = set[int]()
    for place, (_, value) in enumerate(track):
        if best is None or (value > best if metric.higher_is_better else value < best):
            best = value
            records.add(place)
    kept = records | {0, len(track) - 1}
    others = [place for place in range(len(track)) if place not in kept]
    room = max(most - len(kept), 0)
    if room:
        step = max(len(others) / room, 1.0)
        kept |= {others[int(i * step)] for i in range(min(room, len(others)))}
    return [track[place] for place in sorted(kept)]


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 5)


def _plain(fairness: Fairness) -> Entry:
    found = asdict(fairness)
    found["groups"] = {name: round(value, 5) for name, value in fairness.groups.items()}
    return found | {name: round(found[name], 5) for name in ("mean", "worst_decile", "spread")}
