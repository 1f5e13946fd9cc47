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
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

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
from fedpace.core.errors import PeerError
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
from fedpace.core.run import Tick
from fedpace.net.models import Models
from fedpace.net.reports import Came, Gone, Knock, Place, Report, Stopped, Ways
from fedpace.net.settings import ServeSettings
from fedpace.net.spool import Spool

Clock = Callable[[], float]
log = logging.getLogger("fedpace.server")


class World:
    """Clients and their tasks in real time; see core's World.

    places: how many clients there can be; folder: for what must survive the process; clock: seconds
    that never run backwards.
    """

    def __init__(
        self,
        places: int,
        settings: ServeSettings,
        models: Models,
        spool: Spool,
        ways: Ways,
        folder: Path,
        flush: Callable[[], None],
        clock: Clock = time.monotonic,
    ) -> None:
        self._most = places
        self._settings = settings
        self._wait_for = min(settings.wait_for or places, places)
        self._models, self._spool, self._ways = models, spool, ways
        self._names = folder / "clients.json"
        self._flush = flush
        self._clock = clock
        self.places: list[Place] = [Place(name) for name in _read_names(self._names)]
        self.started = False
        self._zero = 0.0
        self._last = 0.0
        self._inbox: deque[tuple[float, Report]] = deque()
        self._news = threading.Condition()
        self._stop: str | None = None
        self._due: deque[Event] = deque()
        self._timers: dict[str, float] = {}
        self._ticks: list[float] = []
        self._arrived: dict[int, int] = {}
        """Task -> client of updates that wait here."""
        self._thanks: list[tuple[int, int]] = []
        self.used: list[int] = []
        """Tasks whose updates are in the models, and still in the spool."""

    # For any thread

    def put(self, report: Report) -> None:
        with self._news:
            self._inbox.append((self._clock(), report))
            self._news.notify()

    def stop(self, reason: str) -> None:
        """Let the run end where it is, to be gone on with later."""
        with self._news:
            self._stop = reason
            self._news.notify()

    def wants(self, client: int, task: int) -> bool:
        """Whether an update of this task is to be had from this client."""
        return 0 <= client < len(self.places) and task in self.places[client].orders

    def now(self) -> float:
        return self._clock() - self._zero if self.started else 0.0

    # What the run sees

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
        self._flush()  # what others are told is on disk first
        self.keep_books(command)
        match command:
            case Probe(client=client) | Train(client=client):
                self._ways.give(client, command, self._left_s(command))
            case Cancel(client=client):
                self._ways.give(client, command, None)
            case Measure():
                self._answer(command.request, self._models.measure(command))
            case Evaluate():
                self._answer(command.request, self._models.evaluate(command.slot))
            case Note(text=text):
                log.info("%s", text)
            case Finish(reason=reason):
                log.info("the policy ends the run: %s", reason)

    def thank(self) -> None:
        """Tell clients that their updates are safe; what is said here is on disk."""
        self._flush()
        for client, task in self._thanks:
            self._ways.accepted(client, task)
        self._thanks.clear()

    # Books: also kept while a journal is retraced

    def keep_books(self, command: Command, learn: bool = True) -> None:
        """What a command changes here. learn: False where the models have it already."""
        match command:
            case Probe() | Train():
                orders = self.places[command.client].orders.setdefault(command.task, [])
                if not orders and learn:
                    self._models.opened(command.task, command.slot)
                orders.append(command)
            case Cancel():
                self.places[command.client].orders.pop(command.task, None)
                self._forget(command.task, learn)
            case Drop():
                self._arrived.pop(command.task, None)
                self._forget(command.task, learn)
            case SetTimer():
                self._timers[command.name] = command.at
            case CancelTimer():
                self._timers.pop(command.name, None)
            case Aggregate():
                if learn:
                    self._models.aggregate(command)
                for task in command.tasks:
                    self._arrived.pop(task, None)
                self.used.extend(command.tasks)
            case Blend() if learn:
                self._models.blend(command)

    def keep_event(self, event: Event, learn: bool = True) -> None:
        """What an event of a journal changes here."""
        match event:
            case Started():
                self.started = True
            case Joined():
                place = self.places[event.client]
                place.online, place.samples, place.most = True, event.samples, event.most
            case Left():
                self.places[event.client].online = False
            case Arrived():
                self.places[event.client].orders.pop(event.task, None)
                self.places[event.client].updates += 1
                self._arrived[event.task] = event.client
                if learn:
                    path = self._spool.path(event.task)
                    if path is None:
                        raise PeerError(
                            f"the update of task {event.task} is not in {self._spool.folder}"
                        )
                    self._models.take(event.task, path)
                    self._models.arrived(event.task)
            case Failed():
                self.places[event.client].orders.pop(event.task, None)
                self._forget(event.task, learn)
            case Timer():
                self._timers.pop(event.name, None)
        self._last = max(self._last, event.at)

    def go_on(self, at: float) -> None:
        """The journal is retraced up to `at`: from here on time runs again."""
        self._zero = self._clock() - at
        self._last = at
        self._spool.keep_only(
            {*self._arrived, *(task for place in self.places for task in place.orders), *self.used}
        )

    def answer_again(self, commands: Iterable[Command]) -> None:
        """Answer what was asked when the server went down."""
        for command in commands:
            if isinstance(command, Measure):
                self._answer(command.request, self._models.measure(command))
            elif isinstance(command, Evaluate):
                self._answer(command.request, self._models.evaluate(command.slot))

    # Inside

    def _wait(self) -> tuple[float, Report] | Tick | Timer:
        """The next report with its time, or a timer that has run out."""
        with self._news:
            while True:
                if self._stop is not None:
                    raise Stopped(self._stop)
                name = min(self._timers, key=lambda one: self._timers[one], default=None)
                timer = math.inf if name is None or not self.started else self._timers[name]
                tick = self._ticks[0] if self._ticks and self.started else math.inf
                soonest, now = min(timer, tick), self.now()
                if self._inbox and (now < soonest or self._inbox[0][0] - self._zero <= soonest):
                    return self._inbox.popleft()
                if now >= soonest:
                    break
                self._news.wait(None if soonest == math.inf else soonest - now)
        if timer <= tick and name is not None:
            del self._timers[name]
            return Timer(self._at(self._clock()), name)
        heapq.heappop(self._ticks)
        return Tick(self._at(self._clock()))

    def _at(self, stamp: float) -> float:
        """A time for an event; never before the last one."""
        self._last = max(self._last, stamp - self._zero) if self.started else 0.0
        return self._last

    def _hear(self, stamp: float, report: Report) -> None:
        match report:
            case Knock(name=name, answer=answer):
                try:
                    answer.set_result(self._number(name))
                except (PeerError, OSError) as error:
                    answer.set_exception(error)
            case Came():
                self._come(stamp, report)
            case Gone(client=client, reason=reason):
                if self.places[client].online:
                    log.info("%s has left: %s", self.places[client].name, reason)
                    self._leave(stamp, client)
            case Arrived():
                self._bring(replace(report, at=self._at(stamp)))
            case Profiled() | Failed():
                event = replace(report, at=self._at(stamp))
                if isinstance(event, Failed) and self.wants(event.client, event.task):
                    self.places[event.client].orders.pop(event.task, None)
                    self._forget(event.task)
                self._due.append(event)

    def _come(self, stamp: float, came: Came) -> None:
        client, place = came.client, self.places[came.client]
        if place.online and came.known and place.instance in ("", came.instance):
            place.instance = came.instance
            came.answer.set_result(tuple(place.orders))
            for orders in place.orders.values():
                for order in orders:
                    self._ways.give(client, order, self._left_s(order))
            log.info("%s is back and goes on with %d tasks", place.name, len(place.orders))
            return
        if place.online:
            log.info("%s was started anew", place.name)
            self._leave(stamp, client)
        place.samples, place.most, place.instance = came.samples, came.most, came.instance
        place.online = True
        came.answer.set_result(())
        log.info("%s has joined with %d samples, as client %d", place.name, came.samples, client)
        if self.started:
            self._due.append(Joined(self._at(stamp), client, came.samples, came.most))
        elif sum(place.online for place in self.places) >= self._wait_for:
            self._start()

    def _start(self) -> None:
        self._zero, self.started = self._clock(), True
        for client, place in enumerate(self.places):
            if place.online:
                self._due.append(Joined(0.0, client, place.samples, place.most))
        self._due.append(Started(0.0))
        log.info("the run begins")

    def _leave(self, stamp: float, client: int) -> None:
        place = self.places[client]
        place.online = False
        if not self.started:
            return
        at = self._at(stamp)
        self._due.append(Left(at, client))
        for task in tuple(place.orders):
            self._due.append(Failed(at, client, task, "the client left"))
            self._forget(task)
        place.orders.clear()

    def _bring(self, event: Arrived) -> None:
        """An update has come: check it before anything else hears of it."""
        client, task = event.client, event.task
        place = self.places[client]
        orders = place.orders.pop(task, None)
        if orders is None:  # cancelled in the meantime: the session writes that down
            self._thanks.append((client, task))
            self._spool.forget(task)
            self._due.append(event)
            return
        try:
            self._check(event, orders, place)
            path = self._spool.path(task)
            if path is None:
                raise PeerError(f"task {task} is reported as done, but its update has not come")
            update = self._models.take(task, path)
            if (update.depth, update.width) != (event.depth, event.width):
                self._models.forget(task)
                raise PeerError(
                    f"task {task} carries depth {update.depth} and width {update.width}, but was "
                    f"reported with {event.depth} and {event.width}"
                )
        except (PeerError, ValueError, OSError) as error:
            self._refuse(event, str(error))
            return
        self._models.arrived(task)
        self._arrived[task] = client
        place.updates += 1
        self._thanks.append((client, task))
        self._due.append(event)

    def _check(self, event: Arrived, orders: list[Probe | Train], place: Place) -> None:
        """That what a client says of its work can be so."""
        task, last = event.task, orders[-1]
        if not isinstance(last, Train):
            raise PeerError(f"task {task} is reported as done, but got no work yet")
        work, rates = last.work, event.rates
        if event.version != last.version:
            raise PeerError(f"task {task} was given version {last.version}, not {event.version}")
        if event.width != work.width:
            raise PeerError(f"task {task} was given width {work.width}, not {event.width}")
        if work.depth is not None and event.depth != work.depth:
            raise PeerError(f"task {task} was given depth {work.depth}, not {event.depth}")
        numbers = (rates.batch_s, rates.down_s, rates.up_s, rates.latency_s)
        if not all(math.isfinite(one) and 0 <= one < 1e7 for one in numbers) or rates.batches < 1:
            raise PeerError(f"task {task} reports impossible rates: {rates}")
        held = place.most or place.samples
        trained = event.trained or 0
        if not (1 <= event.steps <= 10**9 and 0 <= event.full_steps <= event.steps):
            raise PeerError(f"task {task} reports {event.steps} steps, {event.full_steps} of them full")
        if not (
            1 <= event.samples <= held and event.samples <= trained <= event.steps * work.batch_size
        ):
            raise PeerError(
                f"task {task} reports {event.samples} samples, {trained} of them trained on in "
                f"{event.steps} steps, but its client holds {held} and a batch has {work.batch_size}"
            )

    def _refuse(self, event: Arrived, reason: str) -> None:
        place = self.places[event.client]
        place.refused += 1
        log.warning("an update of %s is refused: %s", place.name, reason)
        self._forget(event.task)
        self._due.append(Failed(event.at, event.client, event.task, f"refused: {reason}"))
        self._ways.refused(event.client, event.task, reason)
        if place.refused % self._settings.quarantine_after == 0:
            place.shut_out_until = self._clock() + self._settings.quarantine_s
            log.warning("%s is shut out for %g s", place.name, self._settings.quarantine_s)
            self._ways.expel(event.client, "too many of its updates were refused")
            self._leave(event.at + self._zero, event.client)

    def _forget(self, task: int, learn: bool = True) -> None:
        if learn:
            self._models.forget(task)
        self._spool.forget(task)

    def _answer(self, request: int, values: Iterable[float | None]) -> None:
        known = tuple(one if one is not None and math.isfinite(one) else None for one in values)
        self._due.append(Measured(self._at(self._clock()), request, known))

    def _left_s(self, command: Probe | Train) -> float | None:
        if isinstance(command, Probe) or command.work.stop_at is None:
            return None
        return command.work.stop_at - self.now()

    def _number(self, name: str) -> int:
        """The number of a client; the next free one for a new name."""
        for number, place in enumerate(self.places):
            if place.name == name:
                if self._clock() < place.shut_out_until:
                    raise PeerError(f"{name} is shut out: too many of its updates were refused")
                return number
        if len(self.places) >= self._most:
            raise PeerError(f"this federation has {self._most} places, and all are taken")
        self.places.append(Place(name))
        temporary = self._names.with_suffix(".tmp")
        temporary.write_text(json.dumps([place.name for place in self.places]))
        os.replace(temporary, self._names)
        return len(self.places) - 1


def _read_names(path: Path) -> list[str]:
    return list(json.loads(path.read_text())) if path.exists() else []
