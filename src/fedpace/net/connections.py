"""Control streams of clients, and the time that a client has to come back after its stream broke."""

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fedpace.net import federation_pb2 as pb
from fedpace.net.keys.gate import Gate, RevokedCaller, UnknownCaller, UnreadableRecords
from fedpace.net.keys.identity import Identity
from fedpace.remote.reports import ClientLost, Report
from fedpace.remote.settings import ServeSettings

log = logging.getLogger("fedpace.server")

_SOON_S = 0.01


class Complaints:
    """Says which lines are due in the log: each at most once a minute, for calls are many."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logged: dict[str, float] = {}

    def is_due(self, text: str) -> bool:
        """True where the log has not had this for a minute."""
        now, last = self._clock(), self._logged.get(text)
        if last is not None and now - last < 60:
            return False
        if len(self._logged) > 1000:
            self._logged.clear()
        self._logged[text] = now
        return True


@dataclass(eq=False)
class Connection:
    """A control stream. client: its number; known: it took part in the run before; here: it does now.

    Until it has been told that it takes part, what the run says to it waits. fault: why it is ended,
    where that is for bytes that are no message; doubted_at: since when its proof does not hold;
    moved_at: when its task or steps last changed.
    """

    name: str
    instance: str
    identity: Identity | None
    client: int
    seen_at: float
    known: bool
    outbox: "asyncio.Queue[pb.FromServer | None]" = field(default_factory=lambda: asyncio.Queue(1000))
    here: bool = False
    open: bool = True
    waiting: "list[pb.FromServer] | None" = field(default_factory=list)
    task: int = 0
    steps: int = 0
    moved_at: float = 0.0
    latency_s: float = 0.0
    rates: pb.Rates | None = None
    fault: str = ""
    doubted_at: float | None = None

    @property
    def takes_part(self) -> bool:
        """True once it has been told to start, and what it said before has been heard."""
        return self.open and self.waiting is None

    def hear_beat(self, beat: pb.Beat, now: float) -> None:
        """Note how far the client is."""
        if (beat.task, beat.steps) != (self.task, self.steps):
            self.moved_at = now
        self.task, self.steps, self.latency_s = beat.task, beat.steps, beat.latency_s

    def say(self, message: pb.FromServer) -> None:
        """Put a message into the outbox; a client that does not read is cut off."""
        try:
            self.outbox.put_nowait(message)
        except asyncio.QueueFull:
            self.close()

    def tell(self, message: pb.FromServer) -> None:
        """Send a message of the run; it waits until the client takes part."""
        if self.waiting is None:
            self.say(message)
        else:
            self.waiting.append(message)

    def start(self, held: tuple[int, ...]) -> None:
        """Tell the client that it takes part, then what has waited for it."""
        self.say(pb.FromServer(start=pb.Start(held=held)))
        waiting, self.waiting = self.waiting or [], None
        for message in waiting:
            self.say(message)

    def close(self) -> None:
        """End the stream after what is in the outbox, or at once where that is full."""
        if self.open:
            self.open = False
            if self.outbox.full():
                self.outbox.get_nowait()
            self.outbox.put_nowait(None)


class Connections:
    """The latest stream of every client, by name. put: tells the run.

    All of it belongs to the event loop that it was made in.
    """

    def __init__(
        self,
        settings: ServeSettings,
        gate: Gate,
        put: Callable[[Report], None],
        clock: Callable[[], float],
    ) -> None:
        self._settings, self._gate, self._put, self._clock = settings, gate, put, clock
        self._loop = asyncio.get_running_loop()
        self._named: dict[str, Connection] = {}
        self._hellos: dict[str, deque[float]] = defaultdict(deque)
        self._lost_at: dict[str, float] = {}
        """When clients that take part were last connected; those that are not."""
        self._doubts = ""
        """Why proofs do not hold now, as the log has it."""

    def __iter__(self) -> Iterator[Connection]:
        return iter(list(self._named.values()))

    def add(self, connection: Connection) -> None:
        """Add a new stream; it replaces an older one of the same name."""
        name = connection.name
        before = self._named.get(name)
        self._named[name] = connection
        if before is None:
            return
        before.close()
        if before.instance != connection.instance and self._took_part(before):
            self._lost_at.pop(name, None)
            self._put(ClientLost(connection.client, "it was started anew"))
        elif before.here:
            self.lost(before)

    def arrive(self, connection: Connection) -> None:
        """Mark a client as ready to take part."""
        connection.here = True
        self._lost_at.pop(connection.name, None)

    def too_often(self, name: str) -> str:
        times, now = self._hellos[name], self._clock()
        while times and now - times[0] > 60:
            times.popleft()
        times.append(now)
        if len(times) > self._settings.hellos_per_minute:
            return f"{len(times)} connections in a minute are too many; wait"
        if len(self._hellos) > 10_000:
            self._hellos.clear()
        return ""

    def doubled(self, hello: pb.Hello) -> str:
        """Reason to take this for a second client of its name; empty: there is none."""
        other = self._named.get(hello.name)
        if other is None or not other.open or other.instance == hello.instance:
            return ""
        if self._clock() - other.seen_at > 2 * self._settings.beat_s:
            return ""  # it has most likely been started anew
        return f"{hello.name} is connected already, from another process"

    def _took_part(self, connection: Connection) -> bool:
        """True while the run may count on the client of this connection, or of one before it."""
        return connection.here or connection.name in self._lost_at

    def lost(self, connection: Connection) -> None:
        """Handle the end of a stream: a client that took part has some time to come back."""
        name = connection.name
        now = self._named.get(name)
        if not connection.here:
            if now is connection:
                del self._named[name]
        elif name not in self._lost_at and (now is None or now is connection or not now.here):
            self._lost_at[name] = at = self._clock()
            self._loop.call_later(self._settings.return_s, self._give_up, connection, at)

    def _give_up(self, connection: Connection, lost_at: float) -> None:
        if self._lost_at.get(connection.name) == lost_at:
            left_s = lost_at + self._settings.return_s - self._clock()
            if left_s > _SOON_S:  # this process stood still meanwhile, and its clock with it
                self._loop.call_later(left_s, self._give_up, connection, lost_at)
            else:
                self._gone(connection, "its connection broke")

    def _gone(self, connection: Connection, reason: str) -> None:
        """Give the client up, and tell the run."""
        name = connection.name
        if self._named.get(name) is connection:
            del self._named[name]
        if self._took_part(connection):
            self._lost_at.pop(name, None)
            connection.here = False
            self._put(ClientLost(connection.client, reason))

    async def watch(self) -> None:
        """Cut off clients that have fallen silent or were revoked; until cancelled."""
        while True:
            await asyncio.sleep(min(0.5, self._settings.beat_s / 2))
            for connection in self:
                try:
                    self._look_at(connection)
                except Exception:  # of one client; the others are still to be watched
                    log.exception("%s cannot be watched", connection.name)
            if self._doubts and not any(one.doubted_at is not None for one in self):
                log.info("the proofs of all clients that are here hold again")
                self._doubts = ""

    def _look_at(self, connection: Connection) -> None:
        now = self._clock()
        silent_s = now - connection.seen_at
        if not connection.open:
            return
        if silent_s > self._settings.silent_s:
            connection.close()
            self._gone(connection, f"nothing was heard of it for {silent_s:.1f} s")
            return
        try:
            self._gate.check(connection.identity)
            connection.doubted_at = None
        except RevokedCaller:
            log.warning("%s is revoked, and is cut off", connection.name)
            connection.say(pb.FromServer(refused=pb.Refused(reason="", for_good=True)))
            connection.close()
            self._gone(connection, "it was revoked")
        except UnknownCaller as error:
            self._doubt(connection, error, now)

    def _doubt(self, connection: Connection, error: UnknownCaller, now: float) -> None:
        """Wait for better of a proof that does not hold now: it may be our clock, file or descriptors.

        Meanwhile its calls are turned away. A file that cannot be read says nothing of a client, so
        its stream stays; what else does not pass in `silent_s` ends it, and the client may come back.
        """
        if not self._doubts:
            self._doubts = str(error)
            log.warning("clients are kept waiting, %s first: %s", connection.name, error)
        if connection.doubted_at is None:
            connection.doubted_at = now
        lasted_s = now - connection.doubted_at
        if lasted_s > self._settings.silent_s and not isinstance(error, UnreadableRecords):
            log.warning("%s is cut off for now: %s", connection.name, error)
            connection.say(pb.FromServer(refused=pb.Refused(reason="your keys do not hold now")))
            connection.close()
            self._gone(connection, "its keys do not hold")

    def expect(self, clients: list[int]) -> None:
        """Give clients that were here before a restart some time to come back."""

        until = self._clock() + self._settings.resume_s

        def give_up() -> None:
            left_s = until - self._clock()
            if left_s > _SOON_S:
                self._loop.call_later(left_s, give_up)
                return
            here = {one.client for one in self._named.values() if one.here}
            for client in clients:
                if client not in here:
                    self._put(ClientLost(client, "it did not come back after the server's restart"))

        self._loop.call_later(self._settings.resume_s, give_up)

    async def dismiss(self, reason: str | None) -> None:
        """End all streams; reason: why it is over, None: it is not, and clients may come back."""
        for connection in self:
            if reason is not None:
                connection.say(pb.FromServer(bye=pb.Bye(reason=reason)))
            connection.close()
        for _ in range(50):
            if not any(one.outbox.qsize() for one in self._named.values()):
                break
            await asyncio.sleep(0.02)
