"""Messages to a client's machine and back as JSON, for transports that have no format of their own.

Commands and results are core's, as a journal has them. What a peer sends is taken apart here, and
checked by whoever uses it.
"""

from typing import Any, TypeVar

import msgspec

from fedpace.core import codec
from fedpace.core.commands import Probe, Train
from fedpace.core.errors import FedpaceError, PeerError
from fedpace.core.events import Record, TaskResult


class Introduction(Record, frozen=True):
    """A client that offers itself. model: digest of its layers."""

    name: str
    model: str
    samples: int


class TaskOrder(Record, frozen=True):
    """A command, and all that a new process has to know for it.

    settings: of local training, as JSON; left_s: seconds until work must end, once training begins.
    """

    command: Probe | Train
    seed: int
    settings: str
    left_s: float | None = None


class TaskReport(Record, frozen=True, tag_field="report", tag="done"):
    """A task that was carried out. result: None after a probe; busy_s: seconds spent on it.

    batch_s, batches: as in core's Rates.
    """

    task: int
    batch_s: float
    batches: int
    busy_s: float
    version: int | None = None
    result: TaskResult | None = None


class TaskFailure(Record, frozen=True, tag_field="report", tag="failed"):
    """A task that was not."""

    task: int
    reason: str


M = TypeVar("M", bound=Record)


def to_json(message: Record) -> str:
    return codec.encode(message).decode()


def from_json(kind: type[M], text: str) -> M:
    """The message in a text; PeerError where it is none of this kind."""
    found: M = _decode(kind, text)
    return found


def read_report(text: str) -> TaskReport | TaskFailure:
    """The report in a text; PeerError where it is none."""
    found: TaskReport | TaskFailure = _decode(TaskReport | TaskFailure, text)
    return found


def _decode(kind: Any, text: str) -> Any:
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError, FedpaceError) as error:
        raise PeerError(f"a message cannot be read: {error}") from None
