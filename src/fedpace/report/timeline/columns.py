"""Columns of a timeline: numpy arrays of equal length, one row a span, a task or a round.

Times are seconds of the run's clock, from 0 to `length_s`. Rounds are counted from 1: round r makes
version r of the global model. A row of -1 stands for nothing.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedpace.report.timeline.phases import Waits

Times = NDArray[np.float64]
Numbers = NDArray[np.int64]
Codes = NDArray[np.uint8]
C = TypeVar("C", "ClientSpans", "TaskColumns", "RoundColumns")


@dataclass(frozen=True, slots=True)
class ClientSpans:
    """What every client does when, sorted by client and time, without gaps and overlaps.

    start, end: seconds; end is above start. client: from 0. phase: of `Phase`. round: the one under way
    when the span begins, rounds + 1 after the last. task: row of `TaskColumns` whose work, or whose
    wait, it is; -1 where there is none. used: of `Fate`, what became of that task.
    """

    start: Times
    end: Times
    client: NDArray[np.int32]
    phase: Codes
    round: NDArray[np.int32]
    task: NDArray[np.int32]
    used: Codes

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class TaskColumns:
    """Tasks in the order in which they were given out.

    number: as in the journal. opened, closed: when it was given out and was over, or the journal's end;
    computes: when its download is over; uploads: when its compute is; both within opened and closed.
    What is known of a task that never arrived is an estimate by the client's other tasks.
    fate: of `Fate`; reason: index into `Timeline.reasons`; round: whose model used it, 0 for none;
    staleness: versions that it was behind then, -1 for none. steps, trained, samples, depth, width: of
    its result, 0 where none came; epochs: trained over the samples that the client held.
    sample_s: seconds a sample as the client measured them, nan where it did not.
    """

    number: Numbers
    client: NDArray[np.int32]
    opened: Times
    computes: Times
    uploads: Times
    closed: Times
    fate: Codes
    reason: NDArray[np.int32]
    round: NDArray[np.int32]
    staleness: NDArray[np.int32]
    batch_size: Numbers
    steps: Numbers
    trained: Numbers
    samples: Numbers
    depth: NDArray[np.int32]
    width: Times
    epochs: Times
    sample_s: Times

    def __len__(self) -> int:
        return len(self.number)


@dataclass(frozen=True, slots=True)
class RoundColumns:
    """Rounds, that is new versions of the global model, and what held each of them up.

    start, end: seconds; of policies with groups a round begins with its group, so that rounds overlap;
    otherwise where the one before ended. updates: used in it; late: tasks that were cancelled as late
    when it ended. cause: of `Cause`; client: to blame, -1 where it is nobody in particular; cause_s:
    seconds of the round that went into it. last: client of the last arrival that was needed, -1 for
    none; phase: of `Phase`, what that client spent most of the round's time in, or the one whose pace
    the round had. waited: share of the
    time of all online clients in which they waited for the round or their group.
    """

    start: Times
    end: Times
    updates: NDArray[np.int32]
    late: NDArray[np.int32]
    cause: Codes
    client: NDArray[np.int32]
    cause_s: Times
    last: NDArray[np.int32]
    phase: Codes
    waited: Times

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True, slots=True)
class ServerMarks:
    """What the server did: its aggregations, into whichever model, and its tests of the global one.

    aggregated: when; slot: index into `Timeline.slots`; updates: used. tested: when; value: of the
    main metric, nan where it was not finite.
    """

    aggregated: Times
    slot: NDArray[np.int32]
    updates: NDArray[np.int32]
    tested: Times
    value: Times


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run as it went: spans of all clients, tasks, rounds with their blame, the server's marks.

    length_s: of the run, or as far as it has come; clients: numbered below this; waits: what clients
    wait for. reasons: why tasks failed or were cancelled; slots: names of models.
    """

    length_s: float
    clients: int
    waits: Waits
    spans: ClientSpans
    tasks: TaskColumns
    rounds: RoundColumns
    server: ServerMarks
    reasons: tuple[str, ...]
    slots: tuple[str, ...]


def taken(columns: C, rows: NDArray[Any]) -> C:
    """The same columns with some of their rows, by index or by mask."""
    values = {name: getattr(columns, name)[rows] for name in columns.__slots__}
    return type(columns)(**values)
