"""The server's record of a node: its client, its queue of commands, and how long messages take."""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from fedpace.core.commands import Probe, Train
from fedpace.core.events import Rates

_FIRST_PAUSE_S, _MOST_PAUSE_S = 10.0, 600.0


@dataclass(frozen=True, slots=True)
class QueuedCommand:
    """A command for a node. until: when its work must end, by the server's clock."""

    client: int
    command: Probe | Train
    until: float | None


@dataclass(frozen=True, slots=True)
class SentMessage:
    """A message without an answer yet. queued: None for a hello."""

    id: str
    queued: QueuedCommand | None
    at: float


@dataclass(eq=False)
class Node:
    """A node of Flower; it is sent one message at a time, because it does one at a time.

    client: its number in the run, None while it has none; number_asked: the run was asked for it;
    ready: the run was told that it is ready, and has not answered; greet_at: when a hello is due;
    refusals: how often it was put off; hello_s, trips: seconds that messages took
    beside training, a hello and the last ones with a model.
    """

    number: int
    greet_at: float
    name: str = ""
    samples: int = 0
    client: int | None = None
    number_asked: "Future[int] | None" = None
    ready: "Future[tuple[int, ...]] | None" = None
    queue: deque[QueuedCommand] = field(default_factory=deque)
    sent: SentMessage | None = None
    refusals: int = 0
    hello_s: float = 0.0
    trips: deque[float] = field(default_factory=lambda: deque(maxlen=5))

    def pause(self, now: float) -> float:
        """Put off the next hello, by more and more seconds; how many."""
        pause_s = min(_FIRST_PAUSE_S * 2.0**self.refusals, _MOST_PAUSE_S)
        self.refusals = min(self.refusals + 1, 10)
        self.greet_at = now + pause_s
        return pause_s

    def trip_s(self, message_s: float) -> float:
        """Seconds to reckon with for a message and its reply: the longest of late."""
        return max(message_s, *self.trips) if self.trips else message_s

    def left_s(self, queued: QueuedCommand, now: float, message_s: float) -> float | None:
        """Seconds for a command's work, from when the node begins to train."""
        return None if queued.until is None else queued.until - now - self.trip_s(message_s) / 2

    def rates(
        self, batch_s: float, batches: int, message_s: float, probe_s: float | None = None
    ) -> Rates:
        """Its speeds as policies are told them; half of a message's time is taken to be its way out.

        probe_s: after a probe, what its message took. The work is a message of its own then, which
        brings the model again: it is the model's way, and it takes no less for being an order.
        """
        way_s = self.trip_s(message_s) / 2
        if probe_s is not None:
            return Rates(batch_s, batches, probe_s + way_s, way_s, way_s)
        return Rates(batch_s, batches, way_s, way_s, min(way_s, max(self.hello_s, message_s) / 2))
