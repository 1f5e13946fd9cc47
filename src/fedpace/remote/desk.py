"""The desk where clients' reports are checked, against what they were told and against all limits.

A report becomes one event or several, which the run then tells its policy. A report that cannot be true
fails its task with the reason, so that the journal has it; one on a task that the client has no more,
or never had, goes to the session, which writes down that it was ignored. A client that is refused or
fails too often is shut out for a while (`defence.conduct`).
"""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from fedpace.core.books import Books
from fedpace.core.commands import GLOBAL, Probe, Train
from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, Event, Failed, Left, Profiled, Rates
from fedpace.learn.server.checks import UnfitNumbers
from fedpace.learn.server.model_server import ModelServer
from fedpace.remote.defence.conduct import LEFT, NUMBERS, OVERDUE, REFUSED, UNBLAMED, Conduct
from fedpace.remote.defence.deadlines import Deadlines
from fedpace.remote.defence.health import ModelHealth
from fedpace.remote.defence.influence import InfluenceLimit
from fedpace.remote.defence.norms import GuessedBound
from fedpace.remote.defence.repeats import RepeatLog
from fedpace.remote.defence.speeds import claimed_s, speeds_seen
from fedpace.remote.reports import ClientRecord, check_rates, check_result
from fedpace.remote.settings import ServeSettings
from fedpace.remote.spool import Spool
from fedpace.remote.transport import ClientTransport

log = logging.getLogger("fedpace.server")

MOST_REPORTS = 8
"""On one task. One or two are usual; more come of connections that break again and again."""
MOST_KEPT = 64
"""Latest tasks of a client that are remembered, so that what comes late of them is no offence."""
_UNKNOWN = -1
"""Where reports on tasks that the client never had are counted; updates of such are an offence."""


class ReportDesk:
    """Records of clients, and their reports. All but `wants` and `offer` is for the run's thread.

    books: of the run, to be read; layers: of the model, None: not known here; influence: see
    `InfluenceLimit`.
    """

    def __init__(
        self,
        settings: ServeSettings,
        models: ModelServer,
        spool: Spool,
        transport: ClientTransport,
        clock: Callable[[], float],
        layers: int | None,
        books: Books,
        influence: float = 0.0,
    ) -> None:
        self._settings, self._layers = settings, layers
        self._models, self._spool, self._transport = models, spool, transport
        self.books = books
        self.conduct = Conduct(settings, transport, clock)
        self.deadlines = Deadlines(settings)
        self.health = ModelHealth(settings.loss_factor)
        self.influence = InfluenceLimit(influence)
        self._repeats = RepeatLog(log)
        self._awaited: dict[int, int] = {}
        """Task -> client of updates that may be uploaded. That ends before the books hear of it."""
        self._waited: set[int] = set()
        """Tasks that have stood for other reasons than their clients' speeds."""
        self.pending_acks: list[tuple[int, int]] = []
        """Client and task of updates that are safe as soon as the journal has them."""

    @property
    def clients(self) -> list[ClientRecord]:
        """By their numbers."""
        return self.conduct.clients

    @property
    def members(self) -> int:
        """Clients that are there."""
        return sum(record.online for record in self.clients)

    def wants(self, client: int, task: int) -> bool:
        """True while an update of this task may come from this client."""
        return self._awaited.get(task) == client

    def is_busy(self, client: int) -> bool:
        """True while an update of the client may come."""
        return client in self._awaited.values()

    def offer(self, client: int, task: int, size: int, sha256: bytes) -> int | None:
        """Begin or resume an upload; how many bytes are there, None: it is not wanted."""
        if not self.wants(client, task):
            return None
        with self.clients[client].closing:
            # Once more: an upload must not begin, or be replaced, behind the end of its task.
            return self._spool.offer(task, size, sha256) if self.wants(client, task) else None

    def open(self, command: Probe | Train) -> None:
        """Prepare for what a client is told about a task, which may be a new one."""
        client, task = command.client, command.task
        if task not in self._awaited:
            self._models.opened(command)
            self.clients[client].heard[task] = 0
            self._awaited[task] = client
        elif isinstance(command, Train):
            self._waited.add(task)  # it was probed: its client may have waited for this
        self.deadlines.opened(command, self.books.now)

    def interrupted(self, client: int) -> None:
        """Note that a client's connection broke: its tasks may take longer than its speeds say."""
        self._waited.update(self.books.tasks_of(client))

    def close(self, client: int, task: int) -> None:
        """End a task: nothing of it is uploaded any more."""
        record = self.clients[client]
        with record.closing:
            self._awaited.pop(task, None)
        self.deadlines.closed(task)
        for old in tuple(record.heard)[: max(0, len(record.heard) - MOST_KEPT)]:
            if old not in self._awaited:
                del record.heard[old]

    def drop(self, task: int) -> None:
        """Delete a task's update, or what has come of it."""
        self._waited.discard(task)
        self.influence.forget(task)
        self._models.forget(task)
        self._spool.forget(task)

    def leave(self, client: int, at: float) -> list[Event]:
        """Note that a client is gone; it has left, and its tasks have failed."""
        self.clients[client].online = False
        return self.send_off(client, at)

    def send_off(self, client: int, at: float, but: int | None = None) -> list[Event]:
        """Let a client leave in the eyes of the policy; its tasks have failed, except for one."""
        if not self.books.clients.is_online(client):
            return []
        return [Left(at, client), *self.fail_tasks(client, at, but)]

    def fail_tasks(self, client: int, at: float, but: int | None = None) -> list[Event]:
        """End all tasks of a client that has left."""
        failed = list[Event]()
        for task in self.books.tasks_of(client):
            if task != but and (task in self._awaited or self.influence.holds(task)):
                self.close(client, task)
                self.drop(task)
                failed.append(Failed(at, client, task, LEFT))
        return failed

    # Reports

    def hear(self, event: Profiled | Arrived | Failed) -> list[Event]:
        """The events that a report becomes, on a task that its client has, had, or never had."""
        task, record = event.task, self.clients[event.client]
        known = task in record.heard
        if not known and not record.online:
            return []
        counted = task if known else _UNKNOWN
        record.heard[counted] = record.heard.get(counted, 0) + 1
        if not known and isinstance(event, Arrived):
            return self._refuse(event, f"task {task} is none of this client's")
        if record.heard[counted] > MOST_REPORTS:
            return self._refuse(event, f"task {task} was reported on too often")
        if self.influence.holds(task):
            return []  # it is said again; what counts is that it waits
        if not self.wants(event.client, task):
            # It is over in the meantime, or was reported before: the session writes that down.
            if isinstance(event, Arrived):
                self.pending_acks.append((event.client, task))
            return [event]
        try:
            if isinstance(event, Failed):
                return self._fail_by_client(event, record)
            return self._take(replace(event, rates=self._rates(event, record)), record)
        except OSError as error:  # of our own disk
            return [self._fail(event, f"{UNBLAMED}its update could not be read: {error}")]
        except UnfitNumbers as error:
            return self._refuse_numbers(event, error)
        except Exception as error:  # nothing that a client sends may end the run
            return self._refuse(event, str(error) or type(error).__name__, had=True)

    def keep(self, event: Arrived) -> None:
        """Keep an update that is there, to be used."""
        command = self.books.open[event.task].command
        self.close(event.client, event.task)
        if isinstance(command, Train):
            self._models.expect(event, command.work)
        self._models.collect((event.task,))

    def accept(self, event: Arrived) -> None:
        """Note that an update counts, for its member and for the model that it was made from."""
        command, client = self.books.open[event.task].command, event.client
        self._waited.discard(event.task)
        self.conduct.delivered(client)
        self._learn(event)
        if command.slot == GLOBAL and not self._models.is_bad(event.task):
            members = max(len(self.books.clients.online), 1)
            now = self.books.version()
            if self.health.good(client, event.version, now, members):
                self._models.prove(now)

    def note_profile(self, event: Profiled) -> None:
        """Note a profile: its client waits for work now, or goes on until there is some."""
        self._learn(event)
        self.deadlines.closed(event.task)

    def _learn(self, event: Profiled | Arrived) -> None:
        """Take the speeds of a report that counts."""
        command = self.books.open[event.task].command
        size = command.work.batch_size if isinstance(command, Train) else command.batch_size
        self.deadlines.learned(event.client, event.rates, size, isinstance(event, Arrived))

    def vet(self, event: Arrived, strict: bool = True) -> None:
        """Hold an update's norms against those of others. strict: refuse one that is too large."""
        members = max(len(self.books.clients.online), 1)
        self._models.vet(event.task, event.client, members if strict else None)

    def retrace_failed(self, event: Failed) -> None:
        """Do again what a failed task of a journal did here, before the books hear of it."""
        given = self.books.open.get(event.task)
        self.close(event.client, event.task)
        self.drop(event.task)
        if event.reason.startswith(REFUSED):
            if event.reason.startswith(NUMBERS) and given is not None and given.command.slot == GLOBAL:
                self._note_bad(event.client, given.command.version)
            self.conduct.count_refusal(event.client, event.reason)
        elif given is not None and not (
            event.reason.startswith((LEFT, UNBLAMED)) or _may_come_to_nothing(given.command)
        ):
            self.conduct.count_failure(event.client)

    def next_at(self) -> float:
        """When something is due here next: a deadline, a held update, the end of a pause."""
        held = self.influence.next_at()
        soonest = min(self.deadlines.next_at(), self.conduct.back_at())
        return soonest if held is None else min(soonest, held)

    def release(self, at: float) -> list[Event]:
        """Held updates whose members have no more than their share now."""
        found = list[Event]()
        for held in self.influence.release(at, self.members):
            found.append(self._pass_on(replace(held, at=at)))
        return found

    def fail_overdue(self, at: float) -> list[Event]:
        """Fail tasks whose time is over."""
        found = list[Event]()
        for one in self.deadlines.overdue(at):
            record = self.clients[one.client]
            reason = f"{OVERDUE}nothing came of it for {one.seconds:.0f} s"
            log.warning("task %d of %s is overdue after %.0f s", one.task, record.name, one.seconds)
            failed = self._fail(Failed(at, one.client, one.task, reason), reason)
            found += self._count_failure(failed, record)
        return found

    def offend(self, client: int, at: float, reason: str) -> list[Event]:
        """Count messages that are none against their sender."""
        record = self.clients[client]
        if not self.conduct.count_refusal(client, reason):
            return []
        return self.leave(client, at) if record.online else []

    def _rates(self, event: Profiled | Arrived, record: ClientRecord) -> Rates:
        """A client's speeds, by its own word or by what was seen."""
        rates = check_rates(event.task, event.rates, record)
        given = self.books.open[event.task]
        seen_s = max(event.at - given.opened_at, 0.0)
        waited, most = event.task in self._waited, self._settings.speed_tolerance
        seen = speeds_seen(event, rates, given.command, seen_s, most, waited)
        if seen is None:
            return rates
        record.flagged += 1
        self._repeats.warn(
            record.name,
            "speed",
            "%s reports speeds by which task %d took %.3g s, but it took %.3g s, which counts",
            record.name,
            event.task,
            claimed_s(event, rates),
            seen_s,
        )
        return check_rates(event.task, seen, record)

    def _take(self, event: Profiled | Arrived, record: ClientRecord) -> list[Event]:
        """Check a report before anything else hears of it, and keep its update."""
        client, task = event.client, event.task
        if isinstance(event, Profiled):
            self.note_profile(event)
            return [event]
        # Nothing may be uploaded in its place from here on.
        self.close(client, task)
        check_result(event, self.books.open[task].command, record, self._layers)
        if self._spool.path(task) is None:
            raise PeerError(f"task {task} is reported as done, but its update has not come")
        self.keep(event)
        self.vet(event)
        if self.influence.exceeds(client, self.members):
            self._repeats.warn(
                record.name, "share", "an update of %s waits: it has its share of them", record.name
            )
            self.influence.hold(event)
            return []
        self.influence.note(client, self.members)
        return [self._pass_on(event), *self.release(event.at)]

    def _pass_on(self, event: Arrived) -> Arrived:
        self.accept(event)
        self.pending_acks.append((event.client, event.task))
        return event

    # What comes to nothing

    def _fail_by_client(self, event: Failed, record: ClientRecord) -> list[Event]:
        command = self.books.open[event.task].command
        self.close(event.client, event.task)
        self.drop(event.task)
        text = "task %d of %s failed: %s"
        self._repeats.warn(record.name, "failed", text, event.task, record.name, event.reason)
        return [event] if _may_come_to_nothing(command) else self._count_failure(event, record)

    def _count_failure(self, event: Failed, record: ClientRecord) -> list[Event]:
        """Count a failed task; who fails again and again has a pause, and is shut out in the end."""
        pause_s = self.conduct.count_failure(event.client)
        if self.conduct.is_shut_out(record):
            self.conduct.expel(event.client, "too many of its tasks in a row have failed")
            gone = self.leave(event.client, event.at) if record.online else []
        elif pause_s:
            record.back_at = event.at + pause_s
            gone = self.send_off(event.client, event.at, but=event.task)
        else:
            return [event]
        return [*gone[:1], event, *gone[1:]]  # who has left is given nothing new

    def _fail(self, event: Profiled | Arrived | Failed, reason: str) -> Failed:
        """End a task without an update; the client is told why."""
        self.close(event.client, event.task)
        self.drop(event.task)
        self._transport.send_refusal(event.client, event.task, reason)
        return Failed(event.at, event.client, event.task, reason)

    def _refuse_numbers(self, event: Profiled | Arrived | Failed, error: UnfitNumbers) -> list[Event]:
        """Refuse an update for its numbers; blame its client, unless the model may be to blame."""
        command = self.books.open[event.task].command
        if self._models.is_bad(event.task):
            return [self._fail(event, f"{UNBLAMED}its model was rolled back: {error}")]
        if isinstance(error, GuessedBound):
            return [self._fail(event, f"{UNBLAMED}{error}")]
        if command.slot == GLOBAL:
            self._note_bad(event.client, command.version)
        return self._refuse(event, str(error), had=True, prefix=NUMBERS)

    def _note_bad(self, client: int, version: int) -> None:
        record = self.clients[client]
        self.health.bad(client, version, trusted=record.updates > record.refused)

    def _refuse(
        self, event: Profiled | Arrived | Failed, reason: str, had: bool = False, prefix: str = REFUSED
    ) -> list[Event]:
        """Use nothing of a client's report, and remember it. had: it was on a task of its own."""
        client, record = event.client, self.clients[event.client]
        kind = "".join(one for one in reason if not one.isdigit())[:40]
        self._repeats.warn(record.name, kind, "%s is refused: %s", record.name, reason)
        refused: Event = event  # the session knows no such task, and writes that down
        if had or self.wants(client, event.task):
            refused = self._fail(event, prefix + reason)
        else:
            self._transport.send_refusal(client, event.task, reason)
        if not self.conduct.count_refusal(client, reason):
            return [refused]
        left = self.leave(client, event.at) if record.online else []
        return [*left[:1], refused, *left[1:]]  # who has left is given nothing new


def _may_come_to_nothing(command: Probe | Train) -> bool:
    """True if a task may fail by no fault: its backward pass is stopped, wherever it is."""
    return isinstance(command, Train) and command.work.stop_in is not None
