"""The simulated world: a fleet that carries out commands in virtual time.

It knows devices, data sizes and the model's cost, and decides when what happens. What training does
to weights is the learner's business; the two meet only in task numbers.
"""

import math
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from fedpace.core.books import Books
from fedpace.core.commands import (
    GLOBAL,
    Aggregate,
    Blend,
    Cancel,
    Command,
    Drop,
    Evaluate,
    Measure,
    Probe,
    SetTimer,
    Train,
    Work,
)
from fedpace.core.errors import ConfigError
from fedpace.core.events import (
    Arrived,
    Event,
    Failed,
    Joined,
    Left,
    Measured,
    Profiled,
    Rates,
    Started,
    TaskResult,
    Timer,
)
from fedpace.core.model import ModelProfile, Width
from fedpace.core.run import Tick
from fedpace.data.streams import Stream
from fedpace.fleet.fleet import Fleet, Pace
from fedpace.sim import layerwise, timeline
from fedpace.sim.agenda import Agenda, Kind
from fedpace.sim.learner import Learner
from fedpace.sim.timeline import Batches, Link, TimedResult, batches_of, start_delay_s
from fedpace.sim.uninterrupted import UninterruptedTasks, unstopped

CLIENT = Kind.CLIENT  # an enumeration takes its time to look it up


@dataclass(frozen=True, slots=True)
class _Switch:
    """A client comes or goes."""

    client: int


@dataclass(slots=True)
class _Task:
    command: Probe | Train
    counter: int
    opened_at: float
    computing_from: float
    pace: Pace
    """Of the full model, as the rates are."""
    whole: Link
    way: Link
    """For what is sent: a thinner model where the task has one."""
    samples: int
    """That the client holds when the task begins, and trains on."""
    seen: int | None = None
    """That have come to it by then, where data arrives over time."""
    thin: Width | None = None
    probed_at: float = 0.0
    """When the probe batch is done, if there is one."""


class SimulatedWorld:
    """Clients, their clocks and their open tasks. `next` tells what happens, `carry_out` acts.

    samples: of each client, all that it ever has; stream: how they arrive, None: all are there.
    """

    def __init__(
        self,
        fleet: Fleet,
        samples: Sequence[int],
        model: ModelProfile,
        learner: Learner,
        stream: Stream | None = None,
    ) -> None:
        if len(samples) != fleet.clients:
            raise ConfigError(f"{fleet.clients} devices, but data for {len(samples)} clients")
        self.learner = learner
        self._fleet = fleet
        self._samples = samples
        self._free = fleet.behaviour.free_links, fleet.behaviour.free_download
        self._steady = fleet.behaviour.layer_times == "steady"
        self._faithful = not fleet.behaviour.dropout
        self._model, self._model_bytes = model, model.total_bytes
        self._stream = stream
        self._books: Books
        """The run's, once they are attached."""
        self._agenda: Agenda[Event | Tick | _Switch] = Agenda()
        self._ticks = 0
        self._opening: Iterator[Event] | None = self._open_world()
        self._now_due: deque[Event] = deque()
        self._probed: dict[int, _Task] = {}
        """Open tasks that have no work yet; of the others nothing more need be known."""
        self._counters = array("q", bytes(8 * len(samples)))
        """Tasks that each client has had so far."""
        self._uninterrupted = UninterruptedTasks(
            model, lambda pace: self._link(pace, self._model_bytes)
        )

    def _open_world(self) -> Iterator[Event]:
        """Events of the start: everybody who is there joins, and the run begins.

        One at a time: those of a million clients would take half a gigabyte.
        """
        presence, clients = self._fleet.presence, range(len(self._samples))
        for client in clients:
            self._plan_switch(client, 0.0)
        for client in clients:
            if presence.online_at_start(client):
                yield self._joined(client, 0.0)
        yield Started(0.0)

    def attach(self, books: Books) -> None:
        """The books of the run, to be read: which tasks are open, who is online."""
        self._books = books

    def tick_at(self, at: float) -> None:
        """Ask for a Tick, which comes after everything else of that time."""
        self._ticks += 1
        self._agenda.put(at, Kind.TICK, Tick(at))

    @property
    def settled(self) -> bool:
        """Everything of the last instant that the world owes the policy has been told."""
        return not self._now_due

    def next(self) -> Event | Tick | None:
        """The next event; None when nothing but ticks is left."""
        while True:
            if self._now_due:
                return self._now_due.popleft()
            if self._opening is not None:
                event = next(self._opening, None)
                if event is not None:
                    return event
                self._opening = None
            if self._ticks and len(self._agenda) == self._ticks:
                return None
            if (due := self._agenda.pop()) is None:
                return None
            at, entry = due
            match entry:  # what happens most often comes first
                case Arrived() | Profiled():
                    if entry.task in self._books.open:
                        return entry
                case Timer(name=name):
                    if self._books.timers.get(name) == at:
                        return entry
                case Tick():
                    self._ticks -= 1
                    return entry
                case _Switch(client=client):
                    self._switch(client, at)
                case Failed():
                    if entry.task in self._books.open:
                        self._forget(entry.task)
                        return entry
                case _:
                    return entry

    # Presence

    def _plan_switch(self, client: int, at: float) -> None:
        when = self._fleet.presence.next_change(client, at)
        if when is not None:
            self._agenda.put(when, CLIENT, _Switch(client))

    def _switch(self, client: int, at: float) -> None:
        self._plan_switch(client, at)
        if not self._books.clients.is_online(client):
            self._now_due.append(self._joined(client, at))
            return
        self._now_due.append(Left(at, client))
        for task in sorted(self._books.tasks_of(client)):
            self._forget(task)
            self._now_due.append(Failed(at, client, task, "the client left"))

    def _joined(self, client: int, at: float) -> Joined:
        samples, _ = self._data(client, at, self._books.version())
        return Joined(at, client, samples, None if self._stream is None else self._stream.most(client))

    def _data(self, client: int, at: float, version: int) -> tuple[int, int | None]:
        """Samples that a client holds, and how many have come to it where data arrives over time.

        version: of the global model.
        """
        if self._stream is None:
            return self._samples[client], None
        seen = self._stream.arrived(client, version, at)
        return self._stream.count(client, seen), seen

    # Commands

    def carry_out(self, command: Command, at: float) -> None:
        match command:
            case Train(work=work):
                task = self._probed.pop(command.task, None) if self._probed else None
                if task is None and self._steady and unstopped(work):
                    self._train_whole(command, at)
                else:
                    self._train(command, task or self._begin(command, at), at)
            case Probe():
                task = self._probed[command.task] = self._begin(command, at)
                self._probe(command, task)
            case Cancel(task=number) | Drop(task=number):
                self._forget(number)
            case SetTimer(name=name, at=when):
                self._agenda.put(when, Kind.TIMER, Timer(when, name))
            case Aggregate():
                self.learner.aggregate(command)
            case Blend():
                self.learner.blend(command)
            case Measure(request=request):
                self._answer(at, request, self.learner.measure(command))
            case Evaluate(request=request, slot=slot):
                self._answer(at, request, self.learner.evaluate(slot))
            case _:
                pass

    def send_acks(self) -> None:
        """Nobody waits for them in virtual time."""

    def _answer(self, at: float, request: int, values: Sequence[float | None]) -> None:
        finite = tuple(v if v is not None and math.isfinite(v) else None for v in values)
        self._now_due.append(Measured(at, request, finite))

    def _begin(self, command: Probe | Train, at: float) -> _Task:
        client = command.client
        counter = self._counters[client]
        self._counters[client] = counter + 1
        pace = self._fleet.pace(client, counter)
        share = command.work.width if isinstance(command, Train) else None
        thin = None if share is None else self._model.width(share)
        whole = self._link(pace, self._model_bytes)
        way = whole if thin is None else self._link(pace, thin.bytes)
        data = self._data(client, at, self._version_at(command))
        begins_at = at + way.down_s
        if (starts := self._fleet.starts) is not None:
            begins_at += start_delay_s(starts, command, data[0], _thinned(pace, thin), self._model)
        task = _Task(command, counter, at, begins_at, pace, whole, way, *data, thin)
        task_s = way.down_s + task.samples * _thinned(pace, thin).sample_s + way.up_s
        self._opened(command, counter, at, task_s)
        return task

    def _opened(self, command: Probe | Train, counter: int, at: float, task_s: float) -> None:
        """Note a task, which may end early: its client drops out somewhere in its task_s."""
        client, number = command.client, command.task
        self.learner.opened(command)
        if self._faithful:
            return
        gone_after = self._fleet.dropout_at(client, counter)
        if gone_after is not None:
            self._put(Failed(at + gone_after * task_s, client, number, "the client dropped out"))

    def _link(self, pace: Pace, model_bytes: int) -> Link:
        return timeline.link(pace, model_bytes, *self._free)

    def _put(self, event: Profiled | Arrived | Failed) -> None:
        if not math.isfinite(event.at):
            raise ConfigError(
                f"client {event.client} would take for ever; give the fleet speeds less far apart"
            )
        self._agenda.put(event.at, CLIENT, event)

    def _forget(self, number: int) -> None:
        """A task comes to nothing."""
        self._probed.pop(number, None)
        self.learner.forget(number)

    def _version_at(self, command: Probe | Train) -> int:
        """Version of the global model when a command was given; others have followed since."""
        return command.version if command.slot == GLOBAL else self._books.version()

    def _probe(self, command: Probe, task: _Task) -> None:
        batches = batches_of(command.batch_size, task.samples)
        rates = timeline.rates(batches, task.pace, task.whole)
        task.probed_at = task.computing_from + (
            0.0 if self._fleet.behaviour.free_probe else rates.batch_s
        )
        if (starts := self._fleet.starts) is not None:
            rates = replace(rates, batch_s=rates.batch_s * starts.first_batch.item(command.client))
        self._put(Profiled(task.probed_at + task.way.latency_s, command.client, command.task, rates))

    def _train(self, command: Train, task: _Task, at: float) -> None:
        work, client = command.work, command.client
        batches = batches_of(work.batch_size, task.samples)
        done, begins_at = 0, task.computing_from
        if isinstance(task.command, Probe):
            done, begins_at = timeline.progress_since_probe(
                task.command,
                work,
                batches,
                task.pace.sample_s,
                task.computing_from,
                task.probed_at,
                told_at=at + task.way.latency_s,
            )
            task.pace = self._fleet.pace(client, task.counter, phase=1)
        result, arrives_at = self._result(work, client, task, batches, done, begins_at)
        if not result.steps:
            self._put(Failed(arrives_at, client, command.task, "no layer was done in time"))
            return
        thin, later_s, more_bytes = task.thin, 0.0, 0
        up_bytes = self._model.suffix_bytes[result.depth - 1] if thin is None else thin.bytes
        if work.estimate is not None and not self._fleet.behaviour.free_estimates:
            later_s, more_bytes = self._estimates(work, task, batches, result)
        rates = timeline.rates(batches, task.pace, task.whole)
        self._send(command, arrives_at + later_s, result, up_bytes + more_bytes, rates, task.seen)

    def _train_whole(self, command: Train, at: float) -> None:
        """Do what `_begin` and `_train` do for work that nothing stops, from the cache."""
        client, work = command.client, command.work
        counter = self._counters[client]
        self._counters[client] = counter + 1
        pace = self._fleet.pace(client, counter)
        held, seen = self._data(client, at, self._version_at(command))
        known = self._uninterrupted.of(work, held, pace)
        download_s, training_s, upload_s, result, up_bytes, rates = known
        self._opened(command, counter, at, download_s + held * pace.sample_s + rates.up_s)
        arrives_at = at + download_s + training_s + upload_s
        if (starts := self._fleet.starts) is not None:
            arrives_at += start_delay_s(starts, command, held, pace, self._model)
        self._send(command, arrives_at, result, up_bytes, rates, seen)

    def _send(
        self,
        command: Train,
        arrives_at: float,
        result: TaskResult,
        up_bytes: int,
        rates: Rates,
        seen: int | None,
    ) -> None:
        """Note the arrival of an update, which is known from now on."""
        if (starts := self._fleet.starts) is not None:
            first_s = rates.batch_s * starts.first_batch.item(command.client)
            result = replace(result, first_s=first_s)
        arrived = Arrived(
            at=arrives_at,
            client=command.client,
            task=command.task,
            version=command.version,
            result=result if seen is None else replace(result, seen=seen),
            up_bytes=up_bytes,
            rates=rates,
        )
        self._put(arrived)
        self.learner.expect(arrived, command.work)

    def _estimates(
        self, work: Work, task: _Task, batches: Batches, result: TaskResult
    ) -> tuple[float, int]:
        """Seconds and bytes that estimates add."""
        last = batches.samples_in(result.steps) - batches.samples_in(result.steps - 1)
        whole_bytes = self._model_bytes if task.thin is None else task.thin.bytes
        later_s = timeline.estimate_s(work, last, _thinned(task.pace, task.thin), task.way)
        return later_s, whole_bytes if work.estimate == "gradient" else 0

    def _result(
        self, work: Work, client: int, task: _Task, batches: Batches, done: int, begins_at: float
    ) -> TimedResult:
        pace = task.pace if task.thin is None else _thinned(task.pace, task.thin)
        noise = None if self._steady else self._fleet.layer_noise(client, task.counter)
        if noise is None and work.stop_in is None:
            return timeline.carry_out(work, batches, pace, task.way, self._model, done, begins_at)
        return layerwise.carry_out(work, batches, pace, task.way, self._model, done, begins_at, noise)


def _thinned(pace: Pace, thin: Width | None) -> Pace:
    return pace if thin is None else pace._replace(sample_s=pace.sample_s * thin.compute)
