"""A run's timeline from its journal."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from fedpace.core.codec import Message
from fedpace.core.errors import JournalError
from fedpace.core.journal import Header, read
from fedpace.report.timeline.blame import blamed_rounds
from fedpace.report.timeline.columns import ServerMarks, Timeline
from fedpace.report.timeline.recorder import JournalTables
from fedpace.report.timeline.spans import spans_of, waits_of
from fedpace.report.timeline.tasks import task_times


def timeline_of(header: Header, messages: Iterable[Message]) -> Timeline:
    """The timeline of a journal's messages, which are gone through once."""
    metrics = header.context.metrics
    tables = JournalTables(metrics[0].name if metrics else None)
    tables.write_all(messages)
    return timeline_from(header, tables)


def timeline_at(path: Path, unfinished: bool = False) -> Timeline:
    """The timeline of the journal at `path`; JournalError names the line that is broken.

    unfinished: its run may be going on; a last line that is not whole is left out.
    """
    header, messages = read(path, unfinished)
    try:
        return timeline_of(header, messages)
    except JournalError as error:
        if str(path) in str(error):
            raise
        raise JournalError(f"{path}, {error}") from error


def timeline_from(header: Header, tables: JournalTables) -> Timeline:
    """The timeline of what was written so far; more can be written afterwards."""
    tables.settle()
    times = task_times(tables, header.context.model)
    waits = waits_of(tables)
    clients = max(header.context.clients, tables.clients)
    spans = spans_of(tables, times, clients, waits)
    made, tests = tables.aggregations.array(), tables.tests.array()
    return Timeline(
        length_s=tables.length_s,
        clients=clients,
        waits=waits,
        spans=spans,
        tasks=times.columns,
        rounds=blamed_rounds(tables, times, spans, waits, header.context.slack),
        server=ServerMarks(
            aggregated=made["at"].astype(np.float64),
            slot=made["slot"].astype(np.int32),
            updates=made["updates"].astype(np.int32),
            tested=tests["at"].astype(np.float64),
            value=tests["value"].astype(np.float64),
        ),
        reasons=tuple(tables.reasons),
        slots=tuple(tables.slots),
    )
