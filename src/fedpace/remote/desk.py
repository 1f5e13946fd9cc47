"""Where clients' reports are taken: checked against what they were told, and against all limits.

What a report comes to is one event or several, which the run then tells its policy. A report that
cannot be true fails its task with the reason, so that the journal has it; one on a task that the client
has no more, or never had, goes to the session, which writes down that it was ignored. Who is refused
too often is shut out for a while.
"""

import logging
from collections.abc import Callable

from msgspec.structs import replace

from fedpace.core.commands import Probe, Train
from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, Event, Failed, Left, Profiled
from fedpace.learn.server.model_server import ModelServer
from fedpace.remote.reports import ClientRecord, check_result, checked
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
    """Places of clients, and what they report. All but `wants` and `offer` belongs to the run's thread.

    layers: of the model, None: not known here.
    """

    def __init__(
        self,
        settings: ServeSettings,
        models: ModelServer,
        spool: Spool,
        transport: ClientTransport,
        clock: Callable[[], float],
        layers: int | None,
    ) -> None:
        self._settings, self._clock, self._layers = settings, clock, layers
        self._models, self._spool, self._transport = models, spool, transport
        self.places: list[ClientRecord] = []
        self.arrived: dict[int, int] = {}
        """Task -> client of updates that wait here."""
        self.pending_acks: list[tuple[int, int]] = []
        """Client and task of updates that are safe as soon as the journal has them."""

    def wants(self, client: int, task: int) -> bool:
        """Whether an update of this task is to be had from this client."""
        return 0 <= client < len(self.places) and task in self.places[client].orders

    def offer(self, client: int, task: int, size: int, sha256: bytes) -> int | None:
        """How much of a task's update is there already; None: none is to be had."""
        if not self.wants(client, task):
            return None
        with self.places[client].closing:
            # Once more: an upload must not begin, or be replaced, behind the end of its task.
            return self._spool.offer(task, size, sha256) if self.wants(client, task) else None

    def give(self, command: Probe | Train) -> None:
        """A client is told something about a task, which may be a new one."""
        place = self.places[command.client]
        if command.task not in place.orders:
            self._models.opened(command)
            place.heard[command.task] = 0
        place.orders.setdefault(command.task, []).append(command)

    def close(self, place: ClientRecord, task: int) -> None:
        """A task is over: nothing of it is uploaded any more."""
        with place.closing:
            place.orders.pop(task, None)
        for old in tuple(place.heard)[: max(0, len(place.heard) - MOST_KEPT)]:
            if old not in place.orders:
                del place.heard[old]

    def forget(self, task: int) -> None:
        """Delete what there is of a task."""
        self.arrived.pop(task, None)
        self._models.forget(task)
        self._spool.forget(task)

    def leave(self, client: int, at: float) -> list[Event]:
        """A client is gone, and its tasks have failed."""
        place = self.places[client]
        place.online = False
        if not place.joined:
            return []
        place.joined = False
        return [Left(at, client), *self.fail_all(client, at)]

    def fail_all(self, client: int, at: float) -> list[Event]:
        failed = list[Event]()
        for task in tuple(self.places[client].orders):
            self.close(self.places[client], task)
            self.forget(task)
            failed.append(Failed(at, client, task, "the client left"))
        return failed

    def listen(self, event: Profiled | Arrived | Failed) -> list[Event]:
        """What a client says of a task: one that it has, that it had, or that it never had."""
        task, place = event.task, self.places[event.client]
        known = task in place.heard
        if not known and not place.online:
            return []
        counted = task if known else _UNKNOWN
        place.heard[counted] = place.heard.get(counted, 0) + 1
        if not known and isinstance(event, Arrived):
            return self._refuse(event, f"task {task} is none of this client's")
        if place.heard[counted] > MOST_REPORTS:
            return self._refuse(event, f"task {task} was reported on too often")
        orders = place.orders.get(task)
        if orders is None:  # over in the meantime, or said before: the session writes that down
            if isinstance(event, Arrived):
                self.pending_acks.append((event.client, task))
            return [event]
        try:
            if isinstance(event, Failed):
                log.warning("task %d of %s failed: %s", task, place.name, event.reason)
                self.close(place, task)
                self.forget(task)
                return [event]
            rates = checked(task, event.rates, place)
            if isinstance(event, Arrived):
                self._take(event, orders, place)
            return [replace(event, rates=rates)]
        except OSError as error:  # of our own disk
            return [self._fail(event, f"its update could not be read: {error}")]
        except Exception as error:  # nothing that a client sends may end the run
            return self._refuse(event, str(error) or type(error).__name__, had=True)

    def count_refusal(self, place: ClientRecord) -> bool:
        """Whether the client is shut out from now on."""
        place.refused += 1
        if place.refused % self._settings.quarantine_after:
            return False
        place.shut_out_until = self._clock() + self._settings.quarantine_s
        return True

    def is_shut_out(self, place: ClientRecord) -> bool:
        return self._clock() < place.shut_out_until

    def _take(self, event: Arrived, orders: list[Probe | Train], place: ClientRecord) -> None:
        """Check an update before anything else hears of it."""
        task = event.task
        self.close(place, task)
        check_result(event, orders, place, self._layers)
        if self._spool.path(task) is None:
            raise PeerError(f"task {task} is reported as done, but its update has not come")
        self.keep(event, orders, place)
        self.pending_acks.append((event.client, task))

    def keep(self, event: Arrived, orders: list[Probe | Train], place: ClientRecord) -> None:
        """An update is there, to be used."""
        last = orders[-1]
        if isinstance(last, Train):
            self._models.expect(event, last.work)
        self._models.collect((event.task,))
        self.arrived[event.task] = event.client
        place.updates += 1

    def _fail(self, event: Profiled | Arrived | Failed, reason: str) -> Failed:
        """The task is over without an update; the client is told why."""
        self.close(self.places[event.client], event.task)
        self.forget(event.task)
        self._transport.send_refusal(event.client, event.task, reason)
        return Failed(event.at, event.client, event.task, reason)

    def _refuse(
        self, event: Profiled | Arrived | Failed, reason: str, had: bool = False
    ) -> list[Event]:
        """Use nothing of what a client says, and remember it. had: it was about a task of its own."""
        client, place = event.client, self.places[event.client]
        log.warning("%s is refused: %s", place.name, reason)
        refused: Event = event  # the session knows no such task, and writes that down
        if had or event.task in place.orders:
            refused = self._fail(event, REFUSED + reason)
        else:
            self._transport.send_refusal(client, event.task, reason)
        if not self.count_refusal(place):
            return [refused]
        log.warning("%s is shut out for %g s", place.name, self._settings.quarantine_s)
        self._transport.expel(client, "too many of its reports were refused")
        left = self.leave(client, event.at) if place.online else []
        return [*left[:1], refused, *left[1:]]  # who has left is given nothing new
