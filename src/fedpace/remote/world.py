"""The real world: machines that carry out commands, as a run sees them.

What clients report is put into one inbox, with the time at which it came, and told in that order by
`next`, which waits for it. Everything else here happens in the thread of the run. Reports that have
come by the time of a timer go before it.

A client whose connection broke is not gone yet: if the same process comes back in time, its tasks go
on and the policy hears nothing of it. Who comes back as another process has left and joined.
"""

import heapq
import json
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from fedpace.core.books import Books
from fedpace.core.commands import (
    Aggregate,
    Blend,
    Cancel,
    CancelTimer,
    Command,
    Drop,
    Evaluate,
    Finish,
    Measure,
    Note,
    Probe,
    SetTimer,
    Train,
)
from fedpace.core.errors import FedpaceError, JournalError, PeerError, PolicyError
from fedpace.core.events import (
    Arrived,
    Event,
    Failed,
    Joined,
    Left,
    Measured,
    Profiled,
    Started,
    Timer,
)
from fedpace.core.host import write_whole
from fedpace.core.run import Tick
from fedpace.learn.server.model_server import ModelServer
from fedpace.remote.clock import RunClock
from fedpace.remote.desk import REFUSED, SHUT_OUT, ReportDesk
from fedpace.remote.inbox import Inbox
from fedpace.remote.reports import (
    ClientLost,
    ClientReady,
    ClientRecord,
    JoinRequest,
    Report,
)
from fedpace.remote.settings import ServeSettings
from fedpace.remote.spool import Spool
from fedpace.remote.transport import ClientTransport
from fedpace.remote.updates import UsedUpdates

log = logging.getLogger("fedpace.server")


class RemoteWorld:
    """Clients and their tasks in real time; see core's World.

    places: how many clients there can be; names: file of theirs, which survives the process; clock:
    seconds that never run backwards; layers: of the model, None: not known here.
    """

    def __init__(
        self,
        places: int,
        settings: ServeSettings,
        models: ModelServer,
        spool: Spool,
        transport: ClientTransport,
        names: Path,
        flush: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        layers: int | None = None,
    ) -> None:
        self._most = places
        self._wait_for = min(settings.wait_for or places, places)
        self._models, self._spool, self._transport = models, spool, transport
        self._names = names
        self._flush = flush
        self._time = RunClock(clock, settings.hold_s)
        self.desk = ReportDesk(settings, models, spool, transport, clock, layers)
        self.desk.places.extend(ClientRecord(name) for name in _read_names(self._names))
        self._inbox = Inbox(clock)
        self._due: deque[Event | Tick] = deque()
        self._timers: dict[str, float] = {}
        self._ticks: list[float] = []
        self.used = UsedUpdates(spool)

    # For any thread

    def put(self, report: Report) -> None:
        """Tell the run; PeerError where a client reports faster than it can be heard."""
        self._inbox.put(report)

    def close(self, why: FedpaceError) -> None:
        """Nobody listens any more: who waits for an answer, or will ask, is told so."""
        self._inbox.close(why)

    def stop(self, reason: str) -> None:
        """Let the run end where it is, to be gone on with later."""
        self._inbox.stop(reason)

    def wants(self, client: int, task: int) -> bool:
        """Whether an update of this task is to be had from this client."""
        return self.desk.wants(client, task)

    @property
    def places(self) -> list[ClientRecord]:
        """By the clients' numbers."""
        return self.desk.places

    @property
    def started(self) -> bool:
        return self._time.started

    def now(self) -> float:
        return self._time.now()

    # What the run sees

    def attach(self, books: Books) -> None:
        """The books of the run, to be read."""
        self._books = books

    @property
    def settled(self) -> bool:
        return not self._due

    def tick_at(self, at: float) -> None:
        heapq.heappush(self._ticks, at)

    def next(self) -> Event | Tick | None:
        while not self._due:
            what = self._wait()
            if isinstance(what, Tick | Timer):
                return what
            self._hear(*what)
        return self._due.popleft()

    def carry_out(self, command: Command, at: float) -> None:
        self.flush()  # what others are told is on disk first
        self.keep_books(command)
        match command:
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

    # Books: also kept while a journal is retraced

    def keep_books(self, command: Command) -> None:
        """What a command changes here."""
        match command:
            case Probe() | Train():
                self.desk.give(command)
            case Cancel():
                self.desk.close(self.places[command.client], command.task)
                self.desk.forget(command.task)
            case Drop():
                self.desk.forget(command.task)
            case SetTimer():
                self._timers[command.name] = command.at
            case CancelTimer():
                self._timers.pop(command.name, None)
            case Aggregate():
                self._models.aggregate(command)
                for task in command.tasks:
                    self.desk.arrived.pop(task, None)
                self.used.add(command.tasks)
            case Blend():
                self._models.blend(command)

    def keep_event(self, event: Event) -> None:
        """What an event of a journal changes here."""
        if isinstance(event, Joined | Left | Arrived | Failed) and event.client >= len(self.places):
            raise JournalError(f"{self._names} does not name client {event.client}; it is damaged")
        match event:
            case Started():
                self._time.started = True
            case Joined():
                place = self.places[event.client]
                place.online = place.joined = True
                place.samples, place.most = event.samples, event.most
            case Left():
                place = self.places[event.client]
                place.online = place.joined = False
            case Arrived():
                place = self.places[event.client]
                orders = place.orders[event.task]
                self.desk.close(place, event.task)
                self.desk.keep(event, orders, place)
            case Failed():
                place = self.places[event.client]
                self.desk.close(place, event.task)
                self.desk.forget(event.task)
                if event.reason.startswith(REFUSED):
                    self.desk.count_refusal(place)
            case Timer():
                self._timers.pop(event.name, None)
        self._time.retrace(event.at)

    def go_on(self, at: float) -> None:
        """The journal is retraced up to `at`: time goes on once clients are back, or after a while."""
        self._time.resume(at, [client for client, place in enumerate(self.places) if place.online])
        for client, place in enumerate(self.places):
            if not place.online:  # the server went down while it told that they had left
                self._due.extend(self.desk.fail_all(client, at))
        given = {task for place in self.places for task in place.orders}
        self._spool.keep_only({*self.desk.arrived, *given, *self.used.tasks})
        if self.started:  # so that the run looks at itself: it may have been over
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

    def _wait(self) -> tuple[float, Report] | Tick | Timer:
        """The next report with its stamp, or a timer that has run out."""
        while True:
            pause_s = self._time.pause_left_s()
            runs = self._time.running
            name = min(self._timers, key=lambda one: self._timers[one], default=None)
            timer = math.inf if name is None or not runs else self._timers[name]
            tick = self._ticks[0] if self._ticks and runs else math.inf
            soonest = min(timer, tick)
            left_s = soonest - self.now()
            found = self._inbox.take(partial(self._time.came_by, at=soonest), pause_s or left_s)
            if found is not None:
                return found
            if left_s <= 0:
                break
        if timer <= tick and name is not None:
            del self._timers[name]
            return Timer(self._now(), name)
        heapq.heappop(self._ticks)
        return Tick(self._now())

    def _now(self) -> float:
        """For an event that happens here."""
        return self._time.time_of(self._time.clock())

    def _hear(self, stamp: float, report: Report) -> None:
        match report:
            case JoinRequest(name=name, answer=answer):
                if answer.set_running_or_notify_cancel():  # else it has hung up
                    try:
                        answer.set_result(self._number(name))
                    except (PeerError, OSError) as error:
                        answer.set_exception(error)
            case ClientReady():
                self._come(stamp, report)
            case ClientLost(client=client, reason=reason):
                self._time.release(client)
                if self.places[client].online:
                    log.info("%s has left: %s", self.places[client].name, reason)
                    self._leave(stamp, client)
            case Profiled() | Arrived() | Failed():
                self._due.extend(self.desk.listen(replace(report, at=self._time.time_of(stamp))))

    def _come(self, stamp: float, came: ClientReady) -> None:
        client, place = came.client, self.places[came.client]
        self._time.release(client)
        waits = came.answer.set_running_or_notify_cancel()
        if self.desk.is_shut_out(place):
            if waits:
                came.answer.set_exception(PeerError(SHUT_OUT.format(place.name)))
            return
        if place.online and came.known and place.instance in ("", came.instance):
            place.instance = came.instance
            if waits:
                came.answer.set_result(tuple(place.orders))
            for orders in place.orders.values():
                for order in orders:
                    self._transport.send_command(client, order, self._left_s(order))
            log.info("%s is back and goes on with %d tasks", place.name, len(place.orders))
            self._start_if_all_are_here()
            return
        if place.online:
            log.info("%s was started anew", place.name)
            self._leave(stamp, client)
        place.samples, place.most, place.instance = came.samples, came.most, came.instance
        place.online = True
        if waits:
            came.answer.set_result(())
        log.info("%s has joined with %d samples, as client %d", place.name, came.samples, client)
        if self.started:
            place.joined = True
            self._due.append(Joined(self._time.time_of(stamp), client, came.samples, came.most))
        self._start_if_all_are_here()

    def _start_if_all_are_here(self) -> None:
        if self.started or sum(place.online for place in self.places) < self._wait_for:
            return
        self._time.begin()
        for client, place in enumerate(self.places):
            if place.online and not place.joined:
                place.joined = True
                self._due.append(Joined(0.0, client, place.samples, place.most))
        self._due.append(Started(0.0))
        log.info("the run begins")

    def _leave(self, stamp: float, client: int) -> None:
        self._due.extend(self.desk.leave(client, self._time.time_of(stamp)))

    def _answer(self, request: int, values: Iterable[float | None]) -> None:
        known = tuple(one if one is not None and math.isfinite(one) else None for one in values)
        self._due.append(Measured(self._now(), request, known))

    def _left_s(self, command: Probe | Train) -> float | None:
        if isinstance(command, Probe) or command.work.stop_at is None:
            return None
        return command.work.stop_at - self.now()

    def _number(self, name: str) -> int:
        """The number of a client; the next free one for a new name."""
        for number, place in enumerate(self.places):
            if place.name == name:
                if self.desk.is_shut_out(place):
                    raise PeerError(SHUT_OUT.format(name))
                return number
        if len(self.places) >= self._most:
            raise PeerError(f"this federation has {self._most} places, and all are taken")
        write_whole(self._names, json.dumps([place.name for place in self.places] + [name]))
        self.places.append(ClientRecord(name))
        return len(self.places) - 1


def _read_names(path: Path) -> list[str]:
    try:
        return list(json.loads(path.read_text())) if path.exists() else []
    except ValueError as error:
        raise JournalError(f"{path} is damaged: {error}; start over with --overwrite") from error
