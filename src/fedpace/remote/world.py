"""The real world: clients on machines of their own that carry out commands, as a run sees them.

What clients report is put into one inbox, with the time at which it came, and told in that order by
`next`, which waits for it. Everything else here happens in the thread of the run. Reports that have
come by the time of a timer go before it.

A client whose connection broke is not gone yet: if the same process comes back in time, its tasks go
on and the policy hears nothing of it. Who comes back as another process has left and joined.
"""

import heapq
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from fedpace.core.books import Books
from fedpace.core.budget import Budget
from fedpace.core.commands import (
    Aggregate,
    Blend,
    Cancel,
    Command,
    Drop,
    Evaluate,
    Finish,
    Measure,
    Note,
    Probe,
    Train,
)
from fedpace.core.errors import FedpaceError, JournalError, PeerError, PolicyError
from fedpace.core.events import Arrived, Event, Failed, Joined, Measured, Profiled, Started, Timer
from fedpace.core.run import Tick
from fedpace.learn.server.model_server import ModelServer
from fedpace.remote.clock import RunClock
from fedpace.remote.defence.conduct import SHUT_OUT, read_names
from fedpace.remote.defence.health import ModelHealer
from fedpace.remote.desk import ReportDesk
from fedpace.remote.inbox import Inbox
from fedpace.remote.reports import (
    ClientLost,
    ClientReady,
    ClientRecord,
    DrainRequest,
    JoinRequest,
    Offence,
    Report,
)
from fedpace.remote.settings import ServeSettings
from fedpace.remote.spool import Spool
from fedpace.remote.transport import ClientTransport

log = logging.getLogger("fedpace.server")


class RemoteWorld:
    """Clients and their tasks in real time; see core's World.

    most: clients that there can be; names: file of theirs, which survives the process; clock:
    seconds that never run backwards; layers: of the model, None: not known here; influence: see
    `InfluenceLimit`.
    """

    def __init__(
        self,
        most: int,
        settings: ServeSettings,
        models: ModelServer,
        spool: Spool,
        transport: ClientTransport,
        names: Path,
        flush: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        layers: int | None = None,
        influence: float = 0.0,
    ) -> None:
        self._most = most
        self._wait_for = min(settings.wait_for or most, most)
        self._models, self._spool, self._transport = models, spool, transport
        self._names, self._flush = names, flush
        self._time = RunClock(clock, settings.hold_s)
        parts = models, spool, transport
        self.desk = desk = ReportDesk(settings, *parts, clock, layers, Books(Budget()), influence)
        self.healer = ModelHealer(desk.health, models, desk.conduct, lambda: self._books, self._now)
        self.desk.clients.extend(ClientRecord(name) for name in read_names(names))
        self._inbox = Inbox(clock)
        self._due: deque[Event | Tick] = deque()
        self._ticks: list[float] = []
        self._draining: set[int] = set()

    # For any thread

    def put(self, report: Report) -> None:
        """Tell the run; PeerError where a client reports faster than it can be heard."""
        self._inbox.put(report)

    def close(self, why: FedpaceError) -> None:
        """Hear nobody any more: who waits for an answer, or will ask, is told why."""
        self._inbox.close(why)

    def stop(self, reason: str) -> None:
        """Let the run end where it is, to be gone on with later."""
        self._inbox.stop(reason)

    def drain(self, name: str) -> bool:
        """Let a client end its tasks and leave; False: it is not here."""
        for client, record in enumerate(self.clients):
            if record.name == name and record.online:
                self.put(DrainRequest(client))
                return True
        return False

    def wants(self, client: int, task: int) -> bool:
        """True while an update of this task may come from this client."""
        return self.desk.wants(client, task)

    @property
    def clients(self) -> list[ClientRecord]:
        """By their numbers."""
        return self.desk.clients

    @property
    def unheard(self) -> int:
        """Reports that wait in the inbox."""
        return len(self._inbox)

    def tasks_of(self, client: int) -> list[Probe | Train]:
        """The last command on each open task of a client."""
        found = [self._books.open.get(task) for task in self._books.tasks_of(client)]
        return [task.command for task in found if task is not None]

    @property
    def started(self) -> bool:
        return self._time.started

    def now(self) -> float:
        return self._time.now()

    # What the run sees

    def attach(self, books: Books) -> None:
        """Set the books of the run, to be read."""
        self.desk.books = books

    @property
    def _books(self) -> Books:
        return self.desk.books

    @property
    def settled(self) -> bool:
        return not self._due

    def tick_at(self, at: float) -> None:
        heapq.heappush(self._ticks, at)

    def next(self) -> Event | Tick | None:
        self.healer.heal()
        while not self._due:
            what = self._wait()
            if isinstance(what, Tick | Timer):
                return what
            if what is None:
                self._ring()
            else:
                self._hear(*what)
        return self._due.popleft()

    def carry_out(self, command: Command, at: float) -> None:
        self.flush()  # what others are told is on disk first
        self.apply(command)
        match command:
            case Aggregate(slot=slot):
                self.healer.note_step(slot, at)
            case Probe(client=client) | Train(client=client):
                self._transport.send_command(client, command, self._left_s(command))
            case Cancel(client=client):
                self._transport.send_command(client, command, None)
            case Measure():
                self._answer(command.request, self._models.measure(command))
            case Evaluate():
                self._answer(command.request, self._models.evaluate(command.slot))
            case Note(text=text):
                log.debug("%s", text)
            case Finish(reason=reason):
                log.info("the policy ends the run: %s", reason)

    def send_acks(self) -> None:
        """Tell clients that their updates are safe; what is said here is on disk."""
        self.flush()
        for client, task in self.desk.pending_acks:
            self._transport.send_ack(client, task)
        self.desk.pending_acks.clear()

    def flush(self, how: Callable[[], None] | None = None) -> None:
        """Bring the journal to disk; where that is full, wait for room. how: instead of the usual."""
        told = False
        while True:
            try:
                (how or self._flush)()
                return
            except OSError as error:
                if not told:
                    log.error("the journal cannot be written: %s; the run waits until it can", error)
                told = True
            if self._inbox.stopped is not None:
                # Not RunStopped: what the journal says may not be done yet.
                raise JournalError(
                    f"{self._inbox.stopped}, while the journal could not be written; "
                    "make room and resume"
                )
            self._inbox.sleep(1.0)

    # Also while a journal is retraced

    def apply(self, command: Command) -> None:
        """Do what a command changes here, without telling clients."""
        match command:
            case Probe() | Train():
                self.desk.open(command)
            case Cancel():
                self.desk.close(command.client, command.task)
                self.desk.drop(command.task)
            case Drop():
                self.desk.drop(command.task)
            case Aggregate():
                self._models.aggregate(command)
            case Blend():
                self._models.blend(command)

    def retrace(self, event: Event) -> None:
        """Do what an event of a journal changes here, before the books hear of it."""
        if isinstance(event, Joined | Arrived | Failed) and event.client >= len(self.clients):
            raise JournalError(f"{self._names} does not name client {event.client}; it is damaged")
        match event:
            case Joined(client=client):
                self.clients[client].samples, self.clients[client].most = event.samples, event.most
            case Arrived() if event.task in self._books.open:
                self.desk.keep(event)
                self.desk.vet(event, strict=False)
                self.desk.accept(event)
            case Profiled() if event.task in self._books.open:
                self.desk.note_profile(event)
            case Failed():
                self.desk.retrace_failed(event)

    def resume(self, at: float) -> None:
        """Go on where the journal ends, at a time, once clients are back or after a while."""
        books = self._books
        for client, record in enumerate(self.clients):
            record.online = books.clients.is_online(client)
            if not record.online:  # the server went down while it told that they had left
                self._due.extend(self.desk.fail_tasks(client, at))
        self._time.resume(at, books.started, books.clients.online)
        if books.started:  # so that the run looks at itself: it may have been over
            self._due.append(Tick(at, test=False))

    def answer_again(self, commands: Iterable[Command]) -> None:
        """Answer what was asked when the server went down."""
        for command in commands:
            if isinstance(command, Evaluate):
                self._answer(command.request, self._models.evaluate(command.slot))
            elif isinstance(command, Measure):
                try:
                    values: Iterable[float | None] = self._models.measure(command)
                except PolicyError:  # of updates that have been used since
                    values = [None] * len(command.tasks)
                self._answer(command.request, values)

    # Inside

    def _ring(self) -> None:
        """See to what is due by the run's clock, and no timer of the policy's."""
        now = self._now()
        self._due.extend(self.desk.fail_overdue(now))
        self._due.extend(self.desk.release(now))
        for client in self.desk.conduct.returned(now):
            record = self.clients[client]
            if record.online and not self._books.clients.is_online(client):
                self._due.append(Joined(now, client, record.samples, record.most))

    def _wait(self) -> tuple[float, Report] | Tick | Timer | None:
        """The next report with its stamp, or a timer that has run out; None: something else has."""
        while True:
            pause_s = self._time.pause_left_s()
            runs = self._time.running
            timers = self._books.timers
            name = min(timers, key=lambda one: timers[one], default=None)
            timer = math.inf if name is None or not runs else timers[name]
            tick = self._ticks[0] if self._ticks and runs else math.inf
            alarm = self.desk.next_at() if runs else math.inf
            soonest = min(timer, tick, alarm)
            left_s = soonest - self.now()
            found = self._inbox.take(partial(self._time.came_by, at=soonest), pause_s or left_s)
            if found is not None:
                return found
            if left_s <= 0:
                break
        if alarm < min(timer, tick):
            return None
        if timer <= tick and name is not None:
            return Timer(self._now(), name)
        heapq.heappop(self._ticks)
        return Tick(self._now())

    def _now(self) -> float:
        """The time of an event that happens here."""
        return self._time.time_of(self._time.clock())

    def _hear(self, stamp: float, report: Report) -> None:
        match report:
            case JoinRequest(name=name, answer=answer):
                if answer.set_running_or_notify_cancel():  # else it has hung up
                    try:
                        answer.set_result(self.desk.conduct.number(name, self._most, self._names))
                    except (PeerError, OSError) as error:
                        answer.set_exception(error)
            case ClientReady():
                self._come(stamp, report)
            case DrainRequest(client=client):
                self._draining.add(client)
                self._leave_if_drained(client)
            case ClientLost(client=client, reason=reason):
                self._time.release(client)
                if client in self._draining:
                    self._draining.discard(client)
                    self._transport.dismiss(client, "an operator asked you to leave")
                if self.clients[client].online:
                    log.info("%s has left: %s", self.clients[client].name, reason)
                    self._leave(stamp, client)
            case Offence(client=client, reason=reason):
                self._due.extend(self.desk.offend(client, self._time.time_of(stamp), reason))
            case Profiled() | Arrived() | Failed():
                self._due.extend(self.desk.hear(replace(report, at=self._time.time_of(stamp))))
                self._leave_if_drained(report.client)

    def _come(self, stamp: float, came: ClientReady) -> None:
        client, record = came.client, self.clients[came.client]
        self._time.release(client)
        waits = came.answer.set_running_or_notify_cancel()
        if self.desk.conduct.is_shut_out(record):
            if waits:
                came.answer.set_exception(PeerError(SHUT_OUT.format(record.name)))
            return
        if record.online and came.known and record.instance in ("", came.instance):
            record.instance = came.instance
            self.desk.interrupted(client)
            if waits:
                came.answer.set_result(self._books.tasks_of(client))
            commands = self.tasks_of(client)
            for command in commands:
                self._transport.send_command(client, command, self._left_s(command))
            log.info("%s is back and goes on with %d tasks", record.name, len(commands))
            self._start_if_all_are_here()
            return
        if record.online:
            log.info("%s was started anew", record.name)
            self._leave(stamp, client)
        record.samples, record.most, record.instance = came.samples, came.most, came.instance
        record.online = True
        if waits:
            came.answer.set_result(())
        log.info("%s has joined with %d samples, as client %d", record.name, came.samples, client)
        if self.started and record.back_at is None:
            self._due.append(Joined(self._time.time_of(stamp), client, came.samples, came.most))
        self._start_if_all_are_here()

    def _start_if_all_are_here(self) -> None:
        if self.started or sum(record.online for record in self.clients) < self._wait_for:
            return
        self._time.begin()
        for client, record in enumerate(self.clients):
            if record.online and not self._books.clients.is_online(client):
                self._due.append(Joined(0.0, client, record.samples, record.most))
        self._due.append(Started(0.0))
        log.info("the run begins")

    def _leave_if_drained(self, client: int) -> None:
        """Let a client go that has brought what it had; the policy hears of that first."""
        if client in self._draining and not self.desk.is_busy(client):
            self.put(ClientLost(client, "it was drained"))

    def _leave(self, stamp: float, client: int) -> None:
        self._due.extend(self.desk.leave(client, self._time.time_of(stamp)))

    def _answer(self, request: int, values: Iterable[float | None]) -> None:
        known = tuple(one if one is not None and math.isfinite(one) else None for one in values)
        self._due.append(Measured(self._now(), request, known))

    def _left_s(self, command: Probe | Train) -> float | None:
        if isinstance(command, Probe) or command.work.stop_at is None:
            return None
        return command.work.stop_at - self.now()
