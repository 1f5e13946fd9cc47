"""What a journal tells of each client: its tasks with their speeds and times, and when it was online.

Times are differences on one clock: tasks begin and end by the server's, batches and transfers are
lengths that a client has measured by its own. No two clocks are compared.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from fedpace.core.codec import Message
from fedpace.core.commands import Cancel, Probe, Train
from fedpace.core.events import Arrived, Event, Failed, Joined, Left, Profiled, Rates
from fedpace.core.facts import Closed, Fact
from fedpace.core.journal import Header
from fedpace.core.model import ModelProfile

FEW_BATCHES = 3
"""Batches whose median the first one, which takes longer, does not move much."""
MOST_TIMES = 1000
"""Measurements of a client that are kept, the latest."""


class TaskMeasurement(NamedTuple):
    """One measurement of a task's speeds.

    sample_s: seconds a sample of the full model; down_s, up_s, latency_s: as in Rates, for a model of
    model_bytes. first: of the first batch alone, as a probe measures it; batches: that were measured.
    rest_s: seconds of the task until then that are neither transfer nor batch; first_ratio: time of its
    first batch over that of the others. Both are None where they are not known.
    """

    sample_s: float
    batch_samples: int
    down_s: float
    up_s: float
    latency_s: float
    model_bytes: int
    first: bool
    batches: int
    rest_s: float | None
    first_ratio: float | None


@dataclass(slots=True)
class ClientObservations:
    """All that journals tell of one client.

    tasks: that it was given; failed: of them, by its own fault; unfinished_s: the most seconds a sample
    that one which did not end had taken by then. spans: when it was online, in seconds since its first
    run began, its runs one after the other; length_s: of those runs.
    """

    times: deque[TaskMeasurement] = field(default_factory=lambda: deque(maxlen=MOST_TIMES))
    tasks: int = 0
    failed: int = 0
    unfinished_s: float = 0.0
    spans: list[tuple[float, float]] = field(default_factory=list)
    length_s: float = 0.0


@dataclass(slots=True)
class _OpenedTask:
    at: float
    batch_size: int
    samples: int
    wanted: int
    first_s: float | None = None
    probed: bool = False


class JournalObserver:
    """Goes through the messages of one journal and keeps what they tell of clients, by number.

    real: clients have measured their batches; simulated ones know what a usual batch takes.
    """

    def __init__(self, model: ModelProfile, real: bool) -> None:
        self.clients: dict[int, ClientObservations] = {}
        self._model, self._real = model, real
        self._samples: dict[int, int] = {}
        self._open: dict[int, tuple[int, _OpenedTask]] = {}
        self._online: dict[int, float] = {}
        self._now = self._last = 0.0

    def write(self, message: Message) -> None:
        """Take in one message."""
        if isinstance(message, Event):
            self._now = message.at
        if isinstance(message, Event | Fact):
            self._last = max(self._last, message.at)
        match message:
            case Joined(client=client, samples=samples):
                self.clients.setdefault(client, ClientObservations())
                self._samples[client] = samples
                self._online.setdefault(client, message.at)
            case Left(client=client):
                self._leave(client, message.at)
            case Probe(client=client, task=task, batch_size=size):
                self._begin(client, task, size, size)
            case Train(client=client, task=task, work=work):
                held = self._samples.get(client, 1)
                wanted = work.steps * work.batch_size if work.steps else (work.epochs or 1) * held
                self._begin(client, task, work.batch_size, wanted)
            case Profiled(client=client, task=task, rates=rates) if task in self._open:
                self._measure(client, task, rates, batches=1, first=True)
            case Arrived(task=task) if task in self._open:
                self._arrive(message)
            case Failed(client=client, task=task, reason=reason) if task in self._open:
                own = not reason.startswith(("the client left", "no layer was done", "NothingDone"))
                self.clients[client].failed += own
                self._give_up(task)
            case Cancel(task=task) | Closed(task=task) if task in self._open:
                self._give_up(task)

    def close(self) -> dict[int, ClientObservations]:
        """What was kept, at the end of the journal."""
        for task in list(self._open):
            self._give_up(task)
        for client in list(self._online):
            self._leave(client, self._last)
        for one in self.clients.values():
            one.length_s = self._last
        return self.clients

    def _leave(self, client: int, at: float) -> None:
        since = self._online.pop(client, None)
        if since is not None:
            self.clients[client].spans.append((since, at))

    def _begin(self, client: int, task: int, size: int, wanted: int) -> None:
        opened = self._open.get(task)
        if opened is not None:
            opened[1].wanted = wanted
            return
        samples = max(self._samples.get(client, size), 1)
        self.clients.setdefault(client, ClientObservations()).tasks += 1
        self._open[task] = client, _OpenedTask(self._now, size, samples, wanted)

    def _give_up(self, task: int) -> None:
        client, opened = self._open.pop(task)
        taken_s = (self._now - opened.at) / max(opened.wanted, 1)
        own = self.clients[client]
        own.unfinished_s = max(own.unfinished_s, taken_s)

    def _arrive(self, event: Arrived) -> None:
        result, task = event.result, event.task
        whole = result.depth == self._model.depth and result.width is None and result.last_depth is None
        # Where a part of the model was trained, only batches before that had all of it.
        batches = result.steps if whole or result.width is not None else result.full_steps
        batches = batches if self._real else max(batches, FEW_BATCHES)
        rest_s = None
        opened = self._open[task][1]
        if whole and not opened.probed:
            trained = result.samples if result.trained is None else result.trained
            batch = min(opened.batch_size, opened.samples)
            busy_s = event.rates.down_s + event.rates.up_s + event.rates.batch_s * trained / batch
            rest_s = event.at - opened.at - busy_s
        if opened.first_s is None:
            opened.first_s = result.first_s
        self._measure(event.client, task, event.rates, batches, rest_s=rest_s)
        del self._open[task]

    def _measure(
        self,
        client: int,
        task: int,
        rates: Rates,
        batches: int,
        first: bool = False,
        rest_s: float | None = None,
    ) -> None:
        opened = self._open[task][1]
        batch = min(opened.batch_size, opened.samples)
        batch_s, ratio = rates.batch_s, None
        if first:
            opened.first_s, opened.probed = batch_s, True
            rest_s = self._now - opened.at - rates.down_s - rates.latency_s - batch_s
        elif batches == 2 and opened.first_s is not None:
            # The median of two is their mean: the second one is what it would be without the first.
            second_s = 2 * batch_s - opened.first_s
            batch_s = second_s if second_s > 0 else batch_s
        if not first and batches > 1 and opened.first_s is not None:
            ratio = opened.first_s / batch_s
        self.clients[client].times.append(
            TaskMeasurement(
                batch_s / batch,
                batch,
                rates.down_s,
                rates.up_s,
                rates.latency_s,
                self._model.total_bytes,
                first,
                batches,
                rest_s,
                ratio,
            )
        )


def observe(header: Header, messages: Iterable[Message]) -> dict[int, ClientObservations]:
    """What a journal's messages tell of each client; they are gone through once."""
    observer = JournalObserver(header.context.model, header.run.get("clock") == "real")
    for message in messages:
        observer.write(message)
    return observer.close()
