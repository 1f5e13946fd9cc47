"""The data of a page: everything it shows, as one JSON document that `fedpace.show` takes."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fedpace.core.evaluation.metric import MetricInfo
from fedpace.core.installed.package import package_version
from fedpace.core.journal import Header
from fedpace.report.curves import metric_curve
from fedpace.report.page.aims import aims_of
from fedpace.report.page.bias import PageBias
from fedpace.report.page.details import RunDetails
from fedpace.report.page.measures import ClientMeasure, ClientNumbers
from fedpace.report.page.packing import pack_columns
from fedpace.report.page.paired import MOST_LABELS
from fedpace.report.page.repeat import flat_settings, repeat_entry
from fedpace.report.page.timelines import PageTimelines
from fedpace.report.states import state_cells
from fedpace.report.summary import Groups, Summary, Track, chosen_metric
from fedpace.report.table import caption, heading, measures

FORMAT = 1
"""Of the document; page and data of one format go together."""
MOST_POINTS = 400
"""Points of a curve."""
Details = Callable[[Summary], RunDetails | Header | None]
"""Reads the details of a run; its header alone where its journal is too large for a timeline, None
where it is not to be had."""


def page_data(
    groups: Groups,
    targets: Sequence[float],
    details: Details,
    title: str | None = None,
    metric: str | None = None,
    shown: Collection[str] | None = None,
) -> dict[str, Any]:
    """The document about runs by label; details are asked for one run at a time.

    shown: labels whose numbers are shown at first, by default all.
    """
    chosen = chosen_metric(groups, metric)
    numbers, timelines, headers = ClientNumbers(groups), PageTimelines(), dict[str, Header]()
    bias = PageBias(list(groups))
    runs = [
        (index, rank, run) for index, own in enumerate(groups.values()) for rank, run in enumerate(own)
    ]
    entries = [_run_entry(index, run) for index, _, run in runs]
    # The first seed of every label comes first, where there is not room for all.
    order = sorted(range(len(runs)), key=lambda place: (runs[place][1], place))
    for turn, place in enumerate(order):
        index, rank, run = runs[place]
        found = details(run)
        if found is None:
            continue
        sharing = sum(runs[other][1] == rank for other in order[turn:])
        header = found if isinstance(found, Header) else found.header
        headers.setdefault(list(groups)[index], header)
        entries[place]["version"] = header.fedpace
        whole = None if isinstance(found, Header) else found
        if whole is not None:
            numbers.add(index, whole)
            bias.add(index, whole.bias)
        timelines.add(place, whole, sharing)
    clocks = sorted({run.clock for _, _, run in runs})
    return {
        "format": FORMAT,
        "version": package_version(),
        "title": title or _name(headers) or next(iter(groups), "run"),
        "clock": " and ".join(clocks),
        "notes": [heading(groups), caption(groups)],
        "labels": [
            {"label": label, "policy": own[0].policy, "seeds": [run.seed for run in own],
             "state": state.replace("\n", " "), "shown": shown is None or label in shown}
            for (label, own), state in zip(groups.items(), state_cells(groups), strict=True)
        ],
        "metric": chosen.name if chosen else None,
        "metrics": _metrics(groups),
        "table": [[one.header, list(one.cells)] for one in measures(groups, targets, metric)],
        "curves": _curves(groups),
        "targets": aims_of(groups, targets, chosen),
        "pairs_with": len(groups) if len(groups) <= MOST_LABELS else 1,
        "clients": numbers.clients(_fair_measure(groups)),
        "time": numbers.time(),
        "bias": bias.part(),
        "tasks": _tasks(groups),
        "staleness": [_staleness(own) for own in groups.values()],
        "runs": entries,
        "settings": _settings(list(groups), headers),
        "repeats": [
            {"label": index, **repeat_entry(headers[label], label)}
            for index, label in enumerate(groups)
            if label in headers
        ],
        **timelines.parts(),
    }  # fmt: skip


def _name(headers: Mapping[str, Header]) -> str | None:
    """The name that all runs have in their settings, if they have one."""
    names = {header.run.get("name") for header in headers.values()}
    name = names.pop() if len(names) == 1 else None
    return name if isinstance(name, str) and name not in ("", "run") else None


def _run_entry(index: int, run: Summary) -> dict[str, Any]:
    state = "finished"
    if run.diverged is not None:
        state = f"diverged at round {run.diverged[0]}"
    elif run.finished is None:
        state = f"unfinished at round {run.rounds}"
    return {
        "label": index, "seed": run.seed, "state": state, "finished": run.finished,
        "end_s": run.end_s, "rounds": run.rounds, "version": None,
    }  # fmt: skip


def _metrics(groups: Groups) -> list[dict[str, Any]]:
    """Metrics that any run was tested by, each once."""
    every = [run for runs in groups.values() for run in runs]
    known = dict.fromkeys(one for run in every for one in run.metrics)
    return [_metric(one) for one in known]


def _metric(info: MetricInfo) -> dict[str, Any]:
    return {"name": info.name, "share": info.share, "higher_is_better": info.higher_is_better}


def _curves(groups: Groups) -> dict[str, Any]:
    """Curves of every metric over each axis, as columns c0.x, c0.mean, c0.low, c0.high, c1.x, ..."""
    entries: list[dict[str, Any]] = []
    columns: dict[str, np.ndarray] = {}
    for metric in _metrics(groups):
        for axis in ("time", "rounds", "bytes", "money"):
            for index, runs in enumerate(groups.values()):
                tracks = [_track(run, axis).get(metric["name"], []) for run in runs]
                curve = metric_curve(tracks, MOST_POINTS)
                if curve is None:
                    continue
                name = f"c{len(entries)}"
                seeds = sum(bool(track) for track in tracks)
                entries.append(
                    {
                        "name": name,
                        "metric": metric["name"],
                        "axis": axis,
                        "label": index,
                        "seeds": seeds,
                    }
                )
                for part, values in zip(("x", "mean", "low", "high"), curve, strict=True):
                    columns[f"{name}.{part}"] = np.asarray(values, dtype=np.float32)
    return {"list": entries, "packed": pack_columns(columns)}


def _track(run: Summary, axis: str) -> Mapping[str, Track]:
    tracks = {"time": run.values, "rounds": run.values_by_round, "bytes": run.values_by_bytes}
    return tracks.get(axis, run.values_by_money)


def _fair_measure(groups: Groups) -> ClientMeasure | None:
    tested = [run for runs in groups.values() for run in runs if run.fairness is not None]
    if not tested or tested[0].fairness is None:
        return None
    name = tested[0].fairness.metric
    share = any(one.share for run in tested for one in run.metrics if one.name == name)
    say = "The model's value on the samples that each client keeps for tests."
    return ClientMeasure("fair", "fair", name, share=share, say=say)


def _tasks(groups: Groups) -> dict[str, Any]:
    """Counts of tasks by what became of them, means over seeds."""

    def row(text: str, pick: Callable[[Summary], int], bold: bool = False) -> dict[str, Any]:
        counts = [sum(map(pick, runs)) / len(runs) for runs in groups.values()]
        return {"text": text, "counts": counts, "bold": bold}

    reasons = sorted({reason for runs in groups.values() for run in runs for reason in run.cancelled})
    return {
        "rows": [
            row("tasks", lambda run: run.tasks, bold=True),
            row("arrived", lambda run: run.arrived),
            row("arrived, thrown away", lambda run: run.dropped),
            *(row(f"cancelled: {one}", partial(_cancelled, one)) for one in reasons),
            row("failed", lambda run: run.failed),
            row("unfinished at the end", lambda run: run.unfinished),
        ]
    }


def _cancelled(reason: str, run: Summary) -> int:
    return run.cancelled.get(reason, 0)


def _staleness(runs: Sequence[Summary]) -> list[list[int]]:
    counts: dict[int, int] = {}
    for run in runs:
        for behind, count in run.staleness.items():
            counts[behind] = counts.get(behind, 0) + count
    return [[behind, counts[behind]] for behind in sorted(counts)]


def _settings(labels: Sequence[str], headers: Mapping[str, Header]) -> list[dict[str, Any]]:
    """Settings by key with a value for each label; same: all labels have it."""
    found = {label: flat_settings(headers[label]) for label in labels if label in headers}
    keys = dict.fromkeys(key for one in found.values() for key in one)
    rows = []
    for key in keys:
        values = [found.get(label, {}).get(key) for label in labels]
        rows.append(
            {"key": key, "values": values, "same": len({json.dumps(one) for one in values}) == 1}
        )
    return rows
