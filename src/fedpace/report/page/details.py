"""What a page needs of a run beyond its summary: header, timeline, and numbers of every client."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpace.core.facts import ClientsEvaluated
from fedpace.core.journal import Header, read
from fedpace.report.summary import Summary
from fedpace.report.timeline.build import timeline_from
from fedpace.report.timeline.columns import Timeline
from fedpace.report.timeline.phases import AT_WORK, THROWN_AWAY, Fate, Phase
from fedpace.report.timeline.recorder import JournalTables


@dataclass(frozen=True, slots=True)
class RunDetails:
    """The details of one run, from its journal.

    speeds: seconds a sample of each client, nan where it was never measured. clients: measure -> a
    number for each client, nan where there is none. seconds: of all clients by `Phase` (row) and
    whether the work was thrown away (column).
    """

    summary: Summary
    header: Header
    timeline: Timeline
    speeds: np.ndarray
    clients: dict[str, np.ndarray]
    seconds: np.ndarray


def read_details(path: Path, summary: Summary) -> RunDetails:
    """The details of the journal at `path`, which is read once more."""
    header, messages = read(path, unfinished=summary.finished is None)
    metrics = header.context.metrics
    tables = JournalTables(metrics[0].name if metrics else None)
    tested: ClientsEvaluated | None = None
    for message in messages:
        tables.write(message)
        if isinstance(message, ClientsEvaluated):
            tested = message
    return details_of(header, summary, timeline_from(header, tables), tested)


def details_of(
    header: Header, summary: Summary, timeline: Timeline, tested: ClientsEvaluated | None
) -> RunDetails:
    """The details of a run. tested: its last test on clients' own samples."""
    clients = _client_numbers(header, summary, timeline)
    if tested is not None:
        fair = np.full(timeline.clients, np.nan)
        values = [np.nan if one is None else one for one in tested.values[: timeline.clients]]
        fair[: len(values)] = values
        clients["fair"] = fair
    return RunDetails(
        summary, header, timeline, _mean_by_client(timeline, timeline.tasks.sample_s), clients,
        _seconds(timeline),
    )  # fmt: skip


def _client_numbers(header: Header, summary: Summary, timeline: Timeline) -> dict[str, np.ndarray]:
    tasks, count = timeline.tasks, timeline.clients
    used = tasks.fate == Fate.USED
    hours = timeline.length_s / 3600 or np.nan
    participation = np.full(count, np.nan)
    for client, share in summary.participation.items():
        participation[client] = share
    if not summary.rounds:
        participation[:] = np.nan
    result = tasks.steps > 0
    return {
        "updates_h": np.bincount(tasks.client[used], minlength=count) / hours,
        "samples_h": np.bincount(tasks.client[used], tasks.trained[used], count) / hours,
        "participation": participation,
        "depth": _mean_by_client(timeline, tasks.depth / header.context.model.depth, result),
        "epochs": _mean_by_client(timeline, tasks.epochs, result),
        "steps": _mean_by_client(timeline, tasks.steps, result),
        "batch": _mean_by_client(timeline, tasks.batch_size, result),
    }


def _mean_by_client(
    timeline: Timeline, values: np.ndarray, rows: np.ndarray | None = None
) -> np.ndarray:
    """The mean of the tasks' finite values for each client; nan where there are none."""
    known = np.isfinite(values)
    if rows is not None:
        known &= rows
    client = timeline.tasks.client[known]
    total = np.bincount(client, values[known], timeline.clients)
    counts = np.bincount(client, minlength=timeline.clients)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: np.ndarray = np.where(counts > 0, total / counts, np.nan)
    return mean


def _seconds(timeline: Timeline) -> np.ndarray:
    spans = timeline.spans
    thrown = np.isin(spans.used, THROWN_AWAY) & np.isin(spans.phase, AT_WORK)
    place = spans.phase.astype(np.int64) * 2 + thrown
    sums: np.ndarray = np.bincount(place, spans.end - spans.start, 2 * len(Phase))
    return sums.reshape(len(Phase), 2)
