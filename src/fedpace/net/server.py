"""The server's side of the wire: who is connected, and what goes to and fro.

It runs in an event loop of its own and decides nothing: reports go to the world's inbox, and the run's
commands come through `Ways`, from its thread. Nobody is told anything before it has proved who it is.
"""

import asyncio
import logging
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
from grpc import aio

from fedpace.core.commands import Cancel, Probe, Train
from fedpace.core.errors import PeerError
from fedpace.core.events import Failed, Profiled
from fedpace.net import federation_pb2 as pb
from fedpace.net import transfer, wire
from fedpace.net.arrays import digest
from fedpace.net.gate import Gate, Unknown
from fedpace.net.identity import Identity, is_name
from fedpace.net.models import Models
from fedpace.net.reports import MOST_SAMPLES, Came, Gone, Knock, Over, Stopped
from fedpace.net.service import Call, Unreadable
from fedpace.net.settings import ServeSettings
from fedpace.net.spool import Spool
from fedpace.net.world import World

log = logging.getLogger("fedpace.server")

_NO_STREAM = "there is no control stream of this client"
INSTANCE = "fedpace-instance"
"""Metadata of transfers: the process that they belong to."""
_HELLO_S = 10.0
_END_S = 2.0
"""How long a client has for taking the last that it is told."""
_INSTANCE = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class About:
    """What every client is told of the run."""

    run: str
    seed: int
    settings: str
    model: str
    most_bytes: int


@dataclass(eq=False)
class Connection:
    """A control stream. client: its number; known: it took part in the run before; here: it does.

    Until it has been told that it takes part, what the run says to it waits. fault: why it is ended,
    where that is for bytes that are no message.
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
    latency_s: float = 0.0
    rates: pb.Rates | None = None
    fault: str = ""

    @property
    def takes_part(self) -> bool:
        """Whether it has been told to start, and what it said before has been heard."""
        return self.open and self.waiting is None

    def say(self, message: pb.FromServer) -> None:
        """Into its outbox; a client that does not read is cut off."""
        try:
            self.outbox.put_nowait(message)
        except asyncio.QueueFull:
            self.close()

    def tell(self, message: pb.FromServer) -> None:
        """What the run has to say."""
        if self.waiting is None:
            self.say(message)
        else:
            self.waiting.append(message)

    def start(self, held: tuple[int, ...]) -> None:
        """It takes part from now on."""
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


class Server:
    """Calls of clients, and the ways to them."""

    def __init__(
        self,
        gate: Gate,
        settings: ServeSettings,
        about: About,
        models: Models,
        spool: Spool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate, self._settings, self._about = gate, settings, about
        self._models, self._spool = models, spool
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._connections: dict[str, Connection] = {}
        self._calls: Counter[str] = Counter()
        """Who -> calls that are going on."""
        self._hellos: dict[str, deque[float]] = defaultdict(deque)
        self._digests: dict[int, tuple[bytes, bytes]] = {}
        self._lost_at: dict[str, float] = {}
        """When clients that take part were last connected; those that are not."""
        self.standing: Callable[[], pb.StatusReply] = pb.StatusReply
        """What `status` answers with, apart from the clients."""

    def attach(self, world: World) -> None:
        """The world that reports go to."""
        self._world = world

    # Ways: called by the run's thread

    def give(self, client: int, command: Probe | Train | Cancel, left_s: float | None) -> None:
        self._later(client, wire.order(command, left_s))

    def accepted(self, client: int, task: int) -> None:
        self._later(client, pb.FromServer(accepted=pb.Accepted(task=task)))

    def refused(self, client: int, task: int, reason: str) -> None:
        self._later(client, pb.FromServer(refused=pb.Refused(task=task, reason=reason)))

    def expel(self, client: int, reason: str) -> None:
        self._later(client, pb.FromServer(refused=pb.Refused(reason=reason)), close=True)

    def _later(self, client: int, message: pb.FromServer, close: bool = False) -> None:
        def say() -> None:
            for connection in self._connections.values():
                if connection.client == client and connection.open and connection.here:
                    connection.tell(message)
                    if close:
                        connection.close()

        self._loop.call_soon_threadsafe(say)

    # Calls

    async def admit(self, context: Call) -> Identity | None:
        """Who makes a call; nobody has more than some at a time, so that all can have theirs."""
        try:
            identity = self._gate.who(context)
        except Unknown as error:
            log.warning("a call from %s is turned away: %s", context.peer(), error)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "")
            raise
        who, most = context.peer() if identity is None else identity.name, self._settings.calls_at_once
        if self._calls[who] >= most:
            log.warning("a call of %s is turned away: it has %d others", who, most)
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{most} calls at a time are enough"
            )
        self._calls[who] += 1
        # A cast: its stubs have a class where grpc takes any function.
        context.add_done_callback(cast(Any, lambda _: self._ended(who)))
        return identity

    async def control(
        self, identity: Identity | None, requests: AsyncIterator[pb.FromClient], context: Call
    ) -> None:
        connection = await self._greet(identity, requests, context)
        if connection is None:
            return
        reader = asyncio.create_task(self._read(connection, requests))
        try:
            while (message := await connection.outbox.get()) is not None:
                async with asyncio.timeout(self._settings.silent_s if connection.open else _END_S):
                    await context.write(message)
        except (TimeoutError, aio.AioRpcError, aio.UsageError, aio.InternalError) as error:
            log.info("the stream of %s broke: %s", connection.name, str(error) or "it reads nothing")
        finally:
            connection.open = False
            reader.cancel()
            self._lost(connection)
        if connection.fault:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, connection.fault)

    async def fetch(
        self, identity: Identity | None, request: pb.FetchRequest, context: Call
    ) -> AsyncIterator[pb.Piece]:
        connection = await self._transferring(identity, context)
        data = self._models.file(request.task)
        if data is None or not self._world.wants(connection.client, request.task):
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no task {request.task} for you")
            return
        known = self._digests.get(id(data))
        if known is None or known[0] is not data:
            sha256 = await asyncio.to_thread(digest, data)
            self._digests = {id(data): (data, sha256)}
        else:
            sha256 = known[1]
        try:
            async for piece in transfer.pieces(data, request.offset, sha256):
                if not connection.open:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, _NO_STREAM)
                yield piece
                connection.seen_at = self._clock()
        except PeerError as error:
            await context.abort(transfer.code(error), str(error))

    async def offer(
        self, identity: Identity | None, request: pb.OfferRequest, context: Call
    ) -> pb.OfferReply:
        connection = await self._transferring(identity, context)
        try:
            there = await asyncio.to_thread(
                self._world.desk.offer, connection.client, request.task, request.size, request.sha256
            )
        except (PeerError, OSError) as error:
            await self._fault(connection, context, error)
            raise
        if there is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no task {request.task} for you")
            raise AssertionError("abort raises")
        return pb.OfferReply(offset=there)

    async def send(
        self, identity: Identity | None, requests: AsyncIterator[pb.SendRequest], context: Call
    ) -> pb.SendReply:
        connection = await self._transferring(identity, context)

        def allowed(task: int) -> bool:
            connection.seen_at = self._clock()
            return connection.open and self._world.wants(connection.client, task)

        try:
            return await transfer.receive(requests, self._spool, allowed)
        except (PeerError, OSError) as error:
            await self._fault(connection, context, error)
            raise

    async def status(
        self, identity: Identity | None, request: pb.StatusRequest, context: Call
    ) -> pb.StatusReply:
        reply, now = self.standing(), self._clock()
        by_client = {one.client: one for one in self._connections.values()}
        for client, place in enumerate(self._world.places):
            connection = by_client.get(client)
            rates = connection.rates if connection is not None else None
            row = reply.clients.add(
                name=place.name,
                client=client,
                state=_state(place.online, connection),
                doing=_doing(list(place.orders.items()), connection),
                last_seen_s=now - connection.seen_at if connection is not None else -1.0,
                updates=place.updates,
                refused=place.refused,
            )
            if rates is not None:
                row.batch_s = rates.batch_s
                row.down_s, row.up_s = rates.down_s, rates.up_s
        return reply

    async def watch(self) -> None:
        """Look for clients that have fallen silent or were revoked; until it is cancelled."""
        while True:
            await asyncio.sleep(min(0.5, self._settings.beat_s / 2))
            for connection in list(self._connections.values()):
                try:
                    self._look_at(connection)
                except Exception:  # of one client; the others are still to be watched
                    log.exception("%s cannot be watched", connection.name)

    def _look_at(self, connection: Connection) -> None:
        silent_s = self._clock() - connection.seen_at
        if not connection.open:
            return
        if silent_s > self._settings.silent_s:
            connection.close()
            self._gone(connection, f"nothing was heard of it for {silent_s:.1f} s")
        elif not self._gate.valid(connection.identity):
            log.warning("%s is known no more, and is cut off", connection.name)
            connection.say(pb.FromServer(refused=pb.Refused(reason="", for_good=True)))
            connection.close()
            self._gone(connection, "it was revoked")

    def expect(self, clients: list[int]) -> None:
        """After a restart: these were here, and have some time to come back."""

        def give_up() -> None:
            here = {one.client for one in self._connections.values() if one.here}
            for client in clients:
                if client not in here:
                    self._world.put(Gone(client, "it did not come back after the server's restart"))

        self._loop.call_later(self._settings.resume_s, give_up)

    async def dismiss(self, reason: str | None) -> None:
        """End all streams; reason: why it is over, None: it is not, and clients may come back."""
        for connection in list(self._connections.values()):
            if reason is not None:
                connection.say(pb.FromServer(bye=pb.Bye(reason=reason)))
            connection.close()
        for _ in range(50):
            if not any(one.outbox.qsize() for one in self._connections.values()):
                break
            await asyncio.sleep(0.02)

    # Inside

    def _ended(self, who: str) -> None:
        self._calls[who] -= 1
        if not self._calls[who]:
            del self._calls[who]

    async def _transferring(self, identity: Identity | None, context: Call) -> Connection:
        """The connection that a transfer belongs to."""
        given = dict(context.invocation_metadata() or ()).get(INSTANCE)
        for connection in self._connections.values():
            proved = identity is None or identity.name == connection.name
            if connection.instance == given and connection.takes_part and proved:
                connection.seen_at = self._clock()
                return connection
        await context.abort(grpc.StatusCode.UNAVAILABLE, _NO_STREAM)
        raise AssertionError("abort raises")

    async def _greet(
        self,
        identity: Identity | None,
        requests: AsyncIterator[pb.FromClient],
        context: Call,
    ) -> Connection | None:
        """The connection of a client that may take part; the others are told why not."""
        try:
            async with asyncio.timeout(_HELLO_S):
                first = await anext(requests)
        except (TimeoutError, StopAsyncIteration):
            return None
        except Unreadable as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        hello, fault = first.hello, ""
        if (
            not first.HasField("hello")
            or not is_name(hello.name)
            or not _INSTANCE.fullmatch(hello.instance)
        ):
            fault = "the first message must be a hello with a name and an instance"
        elif identity is not None and identity.name != hello.name:
            fault = f"you are {identity.name}, not {hello.name}"
        elif hello.model != self._about.model:
            fault = "your model has other layers than the server's; build the same one"
        if fault:
            await context.write(pb.FromServer(refused=pb.Refused(reason=fault, for_good=True)))
            return None
        fault = self._too_often(hello.name) or self._doubled(hello)
        number: Future[int] = Future()
        if not fault:
            self._world.put(Knock(hello.name, number))
            try:
                client = await asyncio.wrap_future(number)
                fault = self._doubled(hello)  # another one may have come in between
            except Over as over:
                await context.write(pb.FromServer(bye=pb.Bye(reason=str(over))))
                return None
            except (PeerError, Stopped, OSError) as error:
                fault = str(error)
        if fault:
            log.warning("%s is turned away: %s", hello.name, fault)
            await context.write(pb.FromServer(refused=pb.Refused(reason=fault)))
            return None
        about = self._about
        connection = Connection(
            hello.name, hello.instance, identity, client, self._clock(), hello.run == about.run
        )
        before = self._connections.get(hello.name)
        self._connections[hello.name] = connection
        if before is not None:
            before.close()
            if before.instance != hello.instance and self._took_part(before):
                self._lost_at.pop(hello.name, None)
                self._world.put(Gone(client, "it was started anew"))
            elif before.here:
                self._lost(before)
        connection.say(
            pb.FromServer(
                welcome=pb.Welcome(
                    run=about.run,
                    client=client,
                    seed=about.seed,
                    settings=about.settings,
                    beat_s=self._settings.beat_s,
                    most_bytes=about.most_bytes,
                )
            )
        )
        return connection

    def _too_often(self, name: str) -> str:
        times, now = self._hellos[name], self._clock()
        while times and now - times[0] > 60:
            times.popleft()
        times.append(now)
        if len(times) > self._settings.hellos_per_minute:
            return f"{len(times)} connections in a minute are too many; wait"
        if len(self._hellos) > 10_000:
            self._hellos.clear()
        return ""

    def _doubled(self, hello: pb.Hello) -> str:
        """Why this cannot be the only client of its name, if so."""
        other = self._connections.get(hello.name)
        if other is None or not other.open or other.instance == hello.instance:
            return ""
        if self._clock() - other.seen_at > 2 * self._settings.beat_s:
            return ""  # it has most likely been started anew
        return f"{hello.name} is connected already, from another process"

    async def _read(self, connection: Connection, requests: AsyncIterator[pb.FromClient]) -> None:
        try:
            async for message in requests:
                connection.seen_at = self._clock()
                await self._hear(connection, message)
        except Over as over:
            connection.say(pb.FromServer(bye=pb.Bye(reason=str(over))))
        except Unreadable as error:
            log.warning("%s is cut off: %s", connection.name, error)
            connection.fault = str(error)
        except (PeerError, Stopped) as error:
            log.warning("%s is cut off: %s", connection.name, error)
            connection.say(pb.FromServer(refused=pb.Refused(reason=str(error))))
        except (aio.AioRpcError, aio.UsageError, aio.InternalError):
            pass  # it broke
        except Exception:
            log.exception("what %s sent could not be taken", connection.name)
        finally:
            connection.close()

    async def _hear(self, connection: Connection, message: pb.FromClient) -> None:
        client, kind = connection.client, message.WhichOneof("body")
        if kind == "ready" and not connection.here:
            await self._take_in(connection, message.ready)
        elif kind == "beat":
            beat = message.beat
            connection.task, connection.steps = beat.task, beat.steps
            connection.latency_s = beat.latency_s
            connection.say(pb.FromServer(beat=pb.Beat(number=beat.number)))
        elif not connection.here:
            raise PeerError(f"a message of kind {kind} came before the client was ready")
        elif kind == "profiled":
            connection.rates = message.profiled.rates
            rates = wire.rates(message.profiled.rates)
            self._world.put(Profiled(0.0, client, message.profiled.task, rates))
        elif kind == "done":
            connection.rates = message.done.rates
            self._world.put(wire.arrived(client, message.done, self._size(message.done.task)))
        elif kind == "failed":
            self._world.put(Failed(0.0, client, message.failed.task, _line(message.failed.reason)))
        else:
            raise PeerError(f"a message of kind {kind} has no place here")

    async def _take_in(self, connection: Connection, ready: pb.Ready) -> None:
        most = ready.most if ready.HasField("most") else None
        if not 1 <= ready.samples <= (MOST_SAMPLES if most is None else most) <= MOST_SAMPLES:
            raise PeerError(f"a client with {ready.samples} samples, of {most} at most, cannot train")
        held: Future[tuple[int, ...]] = Future()
        connection.here = True
        self._lost_at.pop(connection.name, None)
        instance, known = connection.instance, connection.known
        self._world.put(Came(connection.client, ready.samples, most, instance, known, held))
        connection.start(await asyncio.wrap_future(held))

    def _took_part(self, connection: Connection) -> bool:
        """Whether the run may still count on the client of this connection, or of one before it."""
        return connection.here or connection.name in self._lost_at

    def _lost(self, connection: Connection) -> None:
        """Its stream is over: who took part has some time to come back, and be ready."""
        name = connection.name
        now = self._connections.get(name)
        if not connection.here:
            if now is connection:
                del self._connections[name]
        elif name not in self._lost_at and (now is None or now is connection or not now.here):
            self._lost_at[name] = at = self._clock()
            self._loop.call_later(self._settings.return_s, self._give_up, connection, at)

    def _give_up(self, connection: Connection, lost_at: float) -> None:
        if self._lost_at.get(connection.name) == lost_at:
            self._gone(connection, "its connection broke")

    def _gone(self, connection: Connection, reason: str) -> None:
        """The run need not count on the client any more."""
        name = connection.name
        if self._connections.get(name) is connection:
            del self._connections[name]
        if self._took_part(connection):
            self._lost_at.pop(name, None)
            connection.here = False
            self._world.put(Gone(connection.client, reason))

    def _size(self, task: int) -> int:
        """Bytes of an update that has come, for the journal."""
        return self._spool.offered(task).size if self._spool.path(task) is not None else 0

    async def _fault(self, connection: Connection, context: Call, error: Exception) -> None:
        if not connection.open:  # it may go on with the next one
            await context.abort(grpc.StatusCode.UNAVAILABLE, _NO_STREAM)
        log.warning("a transfer of %s failed: %s", connection.name, error)
        await context.abort(transfer.code(error), str(error)[:500])


def _state(online: bool, connection: Connection | None) -> str:
    if connection is not None and connection.open:
        return "here" if connection.here else "getting ready"
    return "connection broken" if online else "away"


def _doing(orders: list[tuple[int, list[Probe | Train]]], connection: Connection | None) -> str:
    if not orders:
        return "waits"
    task, given = orders[0]
    steps = (
        f", {connection.steps} batches" if connection is not None and connection.task == task else ""
    )
    word = "trains" if isinstance(given[-1], Train) else "is probed"
    return f"{word} from version {given[-1].version} (task {task}{steps})"


def _line(text: str) -> str:
    """What a client says, as one line that a journal and a terminal can take."""
    return "".join(one if one.isprintable() else " " for one in text[:500])
