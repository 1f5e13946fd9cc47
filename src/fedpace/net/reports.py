"""What clients report to the run, and what the run keeps about them."""

import math
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from fedpace.core.commands import Cancel, Probe, Train
from fedpace.core.errors import FedpaceError
from fedpace.core.events import Arrived, Failed, Profiled


class Stopped(FedpaceError):
    """Somebody asked for the end of the run."""


class Ways(Protocol):
    """The ways to clients. Calls return at once; a client that is not there is no error.

    give: left_s: seconds until its work must end; accepted: an update is safe; refused: it is not used;
    expel: the client is sent away.
    """

    def give(self, client: int, command: Probe | Train | Cancel, left_s: float | None) -> None: ...
    def accepted(self, client: int, task: int) -> None: ...
    def refused(self, client: int, task: int, reason: str) -> None: ...
    def expel(self, client: int, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Knock:
    """Somebody asks for its number; a PeerError where it may not take part."""

    name: str
    answer: "Future[int]" = field(compare=False)


@dataclass(frozen=True, slots=True)
class Came:
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
class Gone:
    """A client has left, or is taken to have."""

    client: int
    reason: str


Report = Knock | Came | Gone | Profiled | Arrived | Failed
"""What comes in; the times of events are set when they come."""


@dataclass(slots=True)
class Place:
    """A client of the run. orders: of its open tasks, what they were told."""

    name: str
    online: bool = False
    instance: str = ""
    samples: int = 0
    most: int | None = None
    orders: dict[int, list[Probe | Train]] = field(default_factory=dict)
    updates: int = 0
    refused: int = 0
    shut_out_until: float = -math.inf
