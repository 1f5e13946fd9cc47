"""What a page needs of a run beyond its summary: header, timeline, and numbers of every client."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedpace.core.facts import ClientsEvaluated
from fedpace.core.journal import Header, read
from fedpace.report.bias.data import ClientData, bias_with_data
from fedpace.report.bias.groups import Bias
from fedpace.report.bias.weights import make_weights
from fedpace.report.summary import Summary
from fedpace.report.timeline.build import timeline_from
from fedpace.report.timeline.columns import Timeline
from fedpace.report.timeline.explained import client_numbers
from fedpace.report.timeline.phases import AT_WORK, THROWN_AWAY, Phase
from fedpace.report.timeline.recorder import JournalTables


@dataclass(frozen=True, slots=True)
class RunDetails:
    """The details of one run, from its journal.

    speeds: seconds a sample of each client, nan where it was never measured. clients: measure -> a
    number for each client, nan where there is none. seconds: of all clients by `Phase` (row) and
    whether the work was thrown away (column). bias: whose data counts; None where it is not known.
    """

    summary: Summary
    header: Header
    timeline: Timeline
    speeds: np.ndarray
    clients: dict[str, np.ndarray]
    seconds: np.ndarray
    bias: Bias | None = None


def read_details(path: Path, summary: Summary) -> RunDetails:
    """The details of the journal at `path`, which is read once more."""
    header, messages = read(path, unfinished=summary.finished is None)
    metrics = header.context.metrics
    tables = JournalTables(metrics[0].name if metrics else None)
    weights = make_weights(header)
    tested: ClientsEvaluated | None = None
    for message in messages:
        tables.write(message)
        weights.write(message)
        if isinstance(message, ClientsEvaluated):
            tested = message
    bias = bias_with_data(weights, ClientData.read(path.parent))
    return details_of(header, summary, timeline_from(header, tables), tested, bias)


def details_of(
    header: Header,
    summary: Summary,
    timeline: Timeline,
    tested: ClientsEvaluated | None,
    bias: Bias | None = None,
) -> RunDetails:
    """The details of a run. tested: its last test on clients' own samples."""
    clients = client_numbers(timeline, header.context.model)
    speeds = clients.pop("sample_s")
    clients["participation"] = _by_client(timeline, summary.participation)
    if tested is not None:
        values = [np.nan if one is None else one for one in tested.values]
        clients["fair"] = _by_client(timeline, dict(enumerate(values)))
    return RunDetails(summary, header, timeline, speeds, clients, _seconds(timeline), bias)


def _by_client(timeline: Timeline, known: Mapping[int, float]) -> np.ndarray:
    """Numbers by client as a column; nan for those who have none."""
    values = np.full(timeline.clients, np.nan)
    for client, value in known.items():
        if client < timeline.clients:
            values[client] = value
    return values


def _seconds(timeline: Timeline) -> np.ndarray:
    spans = timeline.spans
    thrown = np.isin(spans.used, THROWN_AWAY) & np.isin(spans.phase, AT_WORK)
    place = spans.phase.astype(np.int64) * 2 + thrown
    sums: np.ndarray = np.bincount(place, spans.end - spans.start, 2 * len(Phase))
    return sums.reshape(len(Phase), 2)
