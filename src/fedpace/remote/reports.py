"""Reports of clients to the run, the run's records of clients, and checks of one against the other."""

import math
import re
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from msgspec.structs import replace

from fedpace.core.commands import Probe, Train
from fedpace.core.errors import FedpaceError, PeerError
from fedpace.core.events import Arrived, Failed, Profiled, Rates

MOST_S = 1e7
"""Every batch, transfer and epoch takes less: four months."""
LEAST_BATCH_S = 1e-6
"""No batch takes less; what a clock could not tell from nothing is taken for this."""
MOST_SAMPLES = 10**12
MOST_STEPS = 10**9


_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


def is_name(text: str) -> bool:
    """True for 1 to 64 letters, digits, dots, dashes and underscores that begin with no dot."""
    return _NAME.fullmatch(text) is not None


class RunStopped(FedpaceError):
    """Somebody asked for the end of the run, to go on with it later."""


class RunOver(FedpaceError):
    """The run has come to its end."""


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A client asks for its number; a PeerError where it may not take part."""

    name: str
    answer: "Future[int]" = field(compare=False)


@dataclass(frozen=True, slots=True)
class ClientReady:
    """A client is ready. instance: its process; known: it says that it takes part in this run already.

    answer: the tasks that it goes on with.
    """

    client: int
    samples: int
    most: int | None
    instance: str
    known: bool
    answer: "Future[tuple[int, ...]]" = field(compare=False)


@dataclass(frozen=True, slots=True)
class ClientLost:
    """A client has left, or is taken to have."""

    client: int
    reason: str


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """A client is to end the tasks that it has, and to leave."""

    client: int


@dataclass(frozen=True, slots=True)
class Offence:
    """A client has sent what is no message, or none that it may send."""

    client: int
    reason: str


Report = JoinRequest | ClientReady | ClientLost | DrainRequest | Offence | Profiled | Arrived | Failed
"""Messages to the run; the times of events are set when they come."""


@dataclass(slots=True)
class ClientRecord:
    """A client as the run knows it, beside what the books have.

    online: it is connected, or may come back; heard: of its latest tasks, how often it has reported on
    each; closing: held by whoever ends a task or begins an upload, so that no upload outlives its task.
    failures: tasks in a row that failed; back_at: when its pause is over, by the run's clock; flagged:
    reports of speeds that did not agree with what was seen.
    """

    name: str
    online: bool = False
    instance: str = ""
    samples: int = 0
    most: int | None = None
    heard: dict[int, int] = field(default_factory=dict)
    closing: threading.Lock = field(default_factory=threading.Lock)
    updates: int = 0
    refused: int = 0
    last_refusal: str = ""
    failures: int = 0
    flagged: int = 0
    back_at: float | None = None
    shut_out_until: float = -math.inf

    @property
    def held(self) -> int:
        """Samples that it can train on at most."""
        return self.most or self.samples


def check_rates(task: int, rates: Rates, client: ClientRecord) -> Rates:
    """The speeds that a client reports, fit for policies to divide by and to add up; else PeerError.

    Latency is a part of both transfers, but may have been measured later than they were.
    """
    numbers = (rates.batch_s, rates.down_s, rates.up_s, rates.latency_s)
    batch_s = max(rates.batch_s, LEAST_BATCH_S)
    if not (
        all(math.isfinite(one) and 0 <= one < MOST_S for one in numbers)
        and 1 <= rates.batches <= client.held
        and batch_s * rates.batches < MOST_S
    ):
        raise PeerError(f"task {task} reports impossible rates: {rates}")
    latency_s = min(rates.latency_s, rates.down_s, rates.up_s)
    return replace(rates, batch_s=batch_s, latency_s=latency_s)


def check_result(
    event: Arrived, last: Probe | Train, client: ClientRecord, layers: int | None = None
) -> None:
    """Raise PeerError where a result cannot be.

    last: command on its task; layers: of the model, where they are known.
    """
    task, result = event.task, event.result
    if not isinstance(last, Train):
        raise PeerError(f"task {task} is reported as done, but got no work yet")
    work = last.work
    if event.version != last.version:
        raise PeerError(f"task {task} was given version {last.version}, not {event.version}")
    if result.width != work.width:
        raise PeerError(f"task {task} was given width {work.width}, not {result.width}")
    depth = layers if work.depth is None and work.stop_in is None else work.depth
    if depth is not None and result.depth != depth:
        raise PeerError(f"task {task} was given depth {depth}, not {result.depth}")
    if result.last_depth is not None and not (
        work.stop_in is not None and 0 <= result.last_depth <= (layers or result.last_depth)
    ):
        raise PeerError(f"task {task} reports that its last batch ended at depth {result.last_depth}")
    trained = result.trained or 0
    if not (1 <= result.steps <= MOST_STEPS and 0 <= result.full_steps <= result.steps):
        raise PeerError(f"task {task} reports {result.steps} steps, {result.full_steps} of them full")
    if not (
        1 <= result.samples <= client.held
        and max(result.samples, result.steps) <= trained <= result.steps * work.batch_size
    ):
        raise PeerError(
            f"task {task} reports {result.samples} samples, {trained} of them trained on in "
            f"{result.steps} steps, but its client holds {client.held} and a batch has "
            f"{work.batch_size}"
        )
    if result.first_s is not None and not 0 <= result.first_s < MOST_S:
        raise PeerError(f"task {task} reports a first batch of {result.first_s} s")
    if result.seen is not None and not (
        client.most is not None and result.samples <= result.seen <= MOST_SAMPLES
    ):
        raise PeerError(
            f"task {task} reports {result.seen} samples seen, by a client with {client.held}"
        )
