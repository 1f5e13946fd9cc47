"""The desk where clients' reports are checked, against what they were told and against all limits.

A report becomes one event or several, which the run then tells its policy. A report that cannot be true
fails its task with the reason, so that the journal has it; one on a task that the client has no more,
or never had, goes to the session, which writes down that it was ignored. A client that is refused too
often is shut out for a while.
"""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from fedpace.core.books import Books
from fedpace.core.commands import Probe, Train
from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, Event, Failed, Left, Profiled
from fedpace.learn.server.model_server import ModelServer
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
REFUSED = "refused: "
"""What the reason of a task begins with that failed because of what its client said."""
SHUT_OUT = "{} is shut out: too many of its reports were refused"


class ReportDesk:
    """Records of clients, and their reports. All but `wants` and `offer` is for the run's thread.

    books: of the run, to be read; layers: of the model, None: not known here.
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
    ) -> None:
        self._settings, self._clock, self._layers = settings, clock, layers
        self._models, self._spool, self._transport = models, spool, transport
        self.books = books
        self.clients: list[ClientRecord] = []
        """By their numbers."""
        self._awaited: dict[int, int] = {}
        """Task -> client of updates that may be uploaded. That ends before the books hear of it."""
        self.pending_acks: list[tuple[int, int]] = []
        """Client and task of updates that are safe as soon as the journal has them."""

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

    def close(self, client: int, task: int) -> None:
        """End a task: nothing of it is uploaded any more."""
        record = self.clients[client]
        with record.closing:
            self._awaited.pop(task, None)
        for old in tuple(record.heard)[: max(0, len(record.heard) - MOST_KEPT)]:
            if old not in self._awaited:
                del record.heard[old]

    def drop(self, task: int) -> None:
        """Delete a task's update, or what has come of it."""
        self._models.forget(task)
        self._spool.forget(task)

    def leave(self, client: int, at: float) -> list[Event]:
        """Note that a client is gone; it has left, and its tasks have failed."""
        self.clients[client].online = False
        if not self.books.clients.is_online(client):
            return []
        return [Left(at, client), *self.fail_tasks(client, at)]

    def fail_tasks(self, client: int, at: float) -> list[Event]:
        """End all tasks of a client that has left."""
        failed = list[Event]()
        for task in self.books.tasks_of(client):
            if task in self._awaited:
                self.close(client, task)
                self.drop(task)
                failed.append(Failed(at, client, task, "the client left"))
        return failed

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
        if not self.wants(event.client, task):
            # It is over in the meantime, or was reported before: the session writes that down.
            if isinstance(event, Arrived):
                self.pending_acks.append((event.client, task))
            return [event]
        try:
            if isinstance(event, Failed):
                log.warning("task %d of %s failed: %s", task, record.name, event.reason)
                self.close(event.client, task)
                self.drop(task)
                return [event]
            rates = check_rates(task, event.rates, record)
            if isinstance(event, Arrived):
                self._take(event, record)
            return [replace(event, rates=rates)]
        except OSError as error:  # of our own disk
            return [self._fail(event, f"its update could not be read: {error}")]
        except Exception as error:  # nothing that a client sends may end the run
            return self._refuse(event, str(error) or type(error).__name__, had=True)

    def keep(self, event: Arrived) -> None:
        """Keep an update that is there, to be used."""
        command = self.books.open[event.task].command
        self.close(event.client, event.task)
        if isinstance(command, Train):
            self._models.expect(event, command.work)
        self._models.collect((event.task,))
        self.clients[event.client].updates += 1

    def count_refusal(self, client: int) -> bool:
        """Count a refused report; true if the client is shut out from now on."""
        record = self.clients[client]
        record.refused += 1
        if record.refused % self._settings.quarantine_after:
            return False
        record.shut_out_until = self._clock() + self._settings.quarantine_s
        return True

    def is_shut_out(self, record: ClientRecord) -> bool:
        return self._clock() < record.shut_out_until

    def _take(self, event: Arrived, record: ClientRecord) -> None:
        """Check an update before anything else hears of it, and keep it."""
        task = event.task
        # Nothing may be uploaded in its place from here on.
        self.close(event.client, task)
        check_result(event, self.books.open[task].command, record, self._layers)
        if self._spool.path(task) is None:
            raise PeerError(f"task {task} is reported as done, but its update has not come")
        self.keep(event)
        self.pending_acks.append((event.client, task))

    def _fail(self, event: Profiled | Arrived | Failed, reason: str) -> Failed:
        """End a task without an update; the client is told why."""
        self.close(event.client, event.task)
        self.drop(event.task)
        self._transport.send_refusal(event.client, event.task, reason)
        return Failed(event.at, event.client, event.task, reason)

    def _refuse(
        self, event: Profiled | Arrived | Failed, reason: str, had: bool = False
    ) -> list[Event]:
        """Use nothing of a client's report, and remember it. had: it was on a task of its own."""
        client, record = event.client, self.clients[event.client]
        log.warning("%s is refused: %s", record.name, reason)
        refused: Event = event  # the session knows no such task, and writes that down
        if had or self.wants(client, event.task):
            refused = self._fail(event, REFUSED + reason)
        else:
            self._transport.send_refusal(client, event.task, reason)
        if not self.count_refusal(client):
            return [refused]
        log.warning("%s is shut out for %g s", record.name, self._settings.quarantine_s)
        self._transport.expel(client, "too many of its reports were refused")
        left = self.leave(client, event.at) if record.online else []
        return [*left[:1], refused, *left[1:]]  # who has left is given nothing new
