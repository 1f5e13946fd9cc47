"""The gRPC server: calls of clients, and the run's transport to them.

It runs in an event loop of its own and decides nothing: reports go to the world's inbox, and the run's
thread sends commands as through any ClientTransport. Nobody is told anything before it has proved who
it is.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, cast

import grpc
from grpc import aio

from fedpace.core.commands import Cancel, Probe, Train
from fedpace.core.errors import PeerError
from fedpace.core.events import Failed, Profiled
from fedpace.net import federation_pb2 as pb
from fedpace.net import transfer, wire
from fedpace.net.connections import Complaints, Connection, Connections
from fedpace.net.greeting import RunInfo, find_fault
from fedpace.net.keys.gate import Gate, UnknownCaller, UnreadableRecords
from fedpace.net.keys.identity import Identity, day, ends_soon
from fedpace.net.monitor.counters import RunCounters
from fedpace.net.monitor.delays import TaskDelay, task_delays
from fedpace.net.pieces import Piece, Unreadable
from fedpace.net.service import INSTANCE, Call
from fedpace.net.status import add_clients, add_warnings
from fedpace.remote.defence.repeats import RepeatLog
from fedpace.remote.packing import digest
from fedpace.remote.reports import (
    MOST_SAMPLES,
    ClientReady,
    JoinRequest,
    Offence,
    Report,
    RunOver,
    RunStopped,
)
from fedpace.remote.settings import ServeSettings
from fedpace.remote.spool import Spool
from fedpace.remote.updates import ReceivedUpdates
from fedpace.remote.world import RemoteWorld

log = logging.getLogger("fedpace.server")

_NO_STREAM = "there is no control stream of this client"
_HELLO_S = 10.0
_END_S = 2.0
"""How long a client has for taking the last that it is told."""


class Server:
    """Answers calls of clients, and is the transport to them."""

    def __init__(
        self,
        gate: Gate,
        settings: ServeSettings,
        about: RunInfo,
        models: ReceivedUpdates,
        spool: Spool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate, self._settings, self._about = gate, settings, about
        self._models, self._spool = models, spool
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.counters = RunCounters(clock)
        self.connections = Connections(settings, gate, self._put, clock)
        self._calls: Counter[str] = Counter()
        """Who -> calls that are going on."""
        self._complaints = Complaints(clock)
        self._repeats = RepeatLog(log)
        self._digests: dict[int, tuple[bytes, bytes]] = {}
        self.standing: Callable[[], pb.StatusReply] = pb.StatusReply
        """Gives the answer to `status`, but for its clients."""
        self.hold_ups: Callable[[list[TaskDelay]], list[pb.HoldUp]] = lambda delays: []
        """Says what the run waits for, by the open tasks."""
        self.told_over: set[str] = set()
        """Clients that came when the run was over, and know it now."""
        self.on_admitted: Callable[[str, str], None] = lambda peer, name: None
        """Told the peer of a call that is admitted, and the name that it has proved."""

    def attach(self, world: RemoteWorld) -> None:
        """Set the world that reports go to."""
        self._world = world

    def _put(self, report: Report) -> None:
        self._world.put(report)

    # ClientTransport: called by the run's thread

    def send_command(self, client: int, command: Probe | Train | Cancel, left_s: float | None) -> None:
        if not isinstance(command, Cancel):
            self.counters.ordered(command.task)
        self._later(client, wire.order(command, left_s))

    def send_ack(self, client: int, task: int) -> None:
        self._later(client, pb.FromServer(accepted=pb.Accepted(task=task)))

    def send_refusal(self, client: int, task: int, reason: str) -> None:
        self.counters.refused_report(client, reason)
        self._later(client, pb.FromServer(refused=pb.Refused(task=task, reason=reason)))

    def expel(self, client: int, reason: str) -> None:
        self.counters.shut_out(client, reason)
        self._later(client, pb.FromServer(refused=pb.Refused(reason=reason)), close=True)

    def dismiss(self, client: int, reason: str) -> None:
        self._later(client, pb.FromServer(bye=pb.Bye(reason=reason)), close=True)

    def _later(self, client: int, message: pb.FromServer, close: bool = False) -> None:
        def say() -> None:
            for connection in self.connections:
                if connection.client == client and connection.open and connection.here:
                    connection.tell(message)
                    if close:
                        connection.close()

        self._loop.call_soon_threadsafe(say)

    # Calls

    async def admit(self, context: Call) -> Identity | None:
        """Identify a caller; nobody has more than some calls at a time, so that all can have theirs."""
        try:
            identity = self._gate.who(context)
        except UnknownCaller as error:
            if self._complaints.is_due(str(error)):
                log.warning("a call from %s is turned away: %s", context.peer(), error)
            # What is no fault of the caller is worth another try.
            later = isinstance(error, UnreadableRecords)
            self.counters.refused_call("records" if later else "credentials")
            code = grpc.StatusCode.UNAVAILABLE if later else grpc.StatusCode.UNAUTHENTICATED
            await context.abort(code, "")
            raise
        who, most = context.peer() if identity is None else identity.name, self._settings.calls_at_once
        if self._calls[who] >= most:
            self.counters.refused_call("calls")
            self._repeats.warn(who, "calls", "%s has %d calls, and no more is taken", who, most)
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, f"{most} calls at a time are enough"
            )
        self._calls[who] += 1
        self.on_admitted(context.peer(), "" if identity is None else identity.name)
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
            self.connections.lost(connection)
        if connection.fault:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, connection.fault)

    async def fetch(
        self, identity: Identity | None, request: pb.FetchRequest, context: Call
    ) -> AsyncIterator[Piece]:
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
        self.counters.downloading(request.task, 0)
        try:
            async for piece in transfer.pieces(request.task, data, request.offset, sha256):
                if not connection.open:
                    await context.abort(grpc.StatusCode.UNAVAILABLE, _NO_STREAM)
                yield piece
                connection.seen_at = self._clock()
                self.counters.downloading(request.task, len(piece.data))
            self.counters.downloaded(request.task)
        except PeerError as error:
            await context.abort(transfer.status_code(error), str(error))

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
        self.counters.uploading(request.task)
        return pb.OfferReply(offset=there)

    async def send(
        self, identity: Identity | None, requests: AsyncIterator[Piece], context: Call
    ) -> pb.SendReply:
        connection = await self._transferring(identity, context)

        def allowed(task: int) -> bool:
            connection.seen_at = self._clock()
            wanted = connection.open and self._world.wants(connection.client, task)
            if wanted:
                self.counters.uploading(task)
            return wanted

        offer = partial(self._world.desk.offer, connection.client)
        try:
            pieces = self.counters.counted(requests)
            return await transfer.receive(pieces, self._spool, allowed, offer=offer)
        except (PeerError, OSError) as error:
            await self._fault(connection, context, error)
            raise

    async def status(
        self, identity: Identity | None, request: pb.StatusRequest, context: Call
    ) -> pb.StatusReply:
        reply, only = self.standing(), None
        if identity is not None and identity.role != "operator":
            only, reply.own_only = identity.name, True
        now, beat_s = self._clock(), self._settings.beat_s
        delays = task_delays(self._world, self.connections, self.counters, now, beat_s)
        add_clients(reply, self._world, self.connections, self.counters, delays, now, only)
        reply.hold_ups.extend(one for one in self.hold_ups(delays) if only in (None, one.name))
        add_warnings(reply, self._gate, self.connections, only)
        return reply

    # Inside

    def _ended(self, who: str) -> None:
        self._calls[who] -= 1
        if not self._calls[who]:
            del self._calls[who]

    async def _transferring(self, identity: Identity | None, context: Call) -> Connection:
        """The connection that a transfer belongs to."""
        given = dict(context.invocation_metadata() or ()).get(INSTANCE)
        for connection in self.connections:
            proved = identity is None or identity.name == connection.name
            if connection.instance == given and connection.takes_part and proved:
                connection.seen_at = self._clock()
                return connection
        await context.abort(grpc.StatusCode.UNAVAILABLE, _NO_STREAM)
        raise AssertionError("abort raises")

    async def _greet(
        self, identity: Identity | None, requests: AsyncIterator[pb.FromClient], context: Call
    ) -> Connection | None:
        """The connection of a client that may take part; the others are told why not."""
        try:
            async with asyncio.timeout(_HELLO_S):
                first = await anext(requests)
        except (TimeoutError, StopAsyncIteration):
            return None
        except Unreadable as error:
            self.counters.refused_call("unreadable")
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            raise
        hello = first.hello
        kind, fault = find_fault(first, identity, self._about.model)
        if fault:
            self.counters.refused_call(kind)
            await context.write(pb.FromServer(refused=pb.Refused(reason=fault, for_good=True)))
            return None
        kind, fault = "too_often", self.connections.too_often(hello.name)
        if not fault:
            kind, fault = "doubled", self.connections.doubled(hello)
        number: Future[int] = Future()
        if not fault:
            self._world.put(JoinRequest(hello.name, number))
            try:
                client = await asyncio.wrap_future(number)
                fault = self.connections.doubled(hello)  # another one may have come in between
            except RunOver as over:
                await context.write(pb.FromServer(bye=pb.Bye(reason=str(over))))
                self.told_over.add(hello.name)
                return None
            except (PeerError, RunStopped, OSError) as error:
                kind, fault = "place", str(error)
        if fault:
            self.counters.refused_call(kind)
            self._repeats.warn(hello.name, "hello", "%s is turned away: %s", hello.name, fault)
            await context.write(pb.FromServer(refused=pb.Refused(reason=fault)))
            return None
        if identity is not None and ends_soon(identity.until, self._gate.clock()):
            log.warning("the %s of %s ends %s", identity.kind, hello.name, day(identity.until))
        known = hello.run == self._about.run
        connection = Connection(hello.name, hello.instance, identity, client, self._clock(), known)
        self.connections.add(connection)
        connection.say(self._about.welcome(client, self._settings.beat_s))
        return connection

    async def _read(self, connection: Connection, requests: AsyncIterator[pb.FromClient]) -> None:
        try:
            async for message in requests:
                connection.seen_at = self._clock()
                await self._hear(connection, message)
        except RunOver as over:
            connection.say(pb.FromServer(bye=pb.Bye(reason=str(over))))
        except Unreadable as error:
            self.counters.refused_call("unreadable")
            self._offend(connection, str(error))
            connection.fault = str(error)
        except (PeerError, RunStopped) as error:
            if isinstance(error, PeerError) and (connection.takes_part or not connection.here):
                self._offend(connection, str(error))
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
            connection.hear_beat(message.beat, connection.seen_at)
            connection.say(pb.FromServer(beat=pb.Beat(number=message.beat.number)))
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
            self._world.put(
                Failed(0.0, client, message.failed.task, wire.one_line(message.failed.reason))
            )
        else:
            raise PeerError(f"a message of kind {kind} has no place here")

    async def _take_in(self, connection: Connection, ready: pb.Ready) -> None:
        most = ready.most if ready.HasField("most") else None
        if not 1 <= ready.samples <= (MOST_SAMPLES if most is None else most) <= MOST_SAMPLES:
            raise PeerError(f"a client with {ready.samples} samples, of {most} at most, cannot train")
        held: Future[tuple[int, ...]] = Future()
        self.connections.arrive(connection)
        instance, known = connection.instance, connection.known
        self._world.put(ClientReady(connection.client, ready.samples, most, instance, known, held))
        connection.start(await asyncio.wrap_future(held))

    def _offend(self, connection: Connection, reason: str) -> None:
        """Tell the run of what is no message, and say so once."""
        self._repeats.warn(connection.name, "message", "%s is cut off: %s", connection.name, reason)
        self.counters.note_offence(connection.client, reason)
        self._put(Offence(connection.client, reason))

    def _size(self, task: int) -> int:
        """Size of an update that has come, for the journal."""
        return self._spool.offered(task).size if self._spool.path(task) is not None else 0

    async def _fault(self, connection: Connection, context: Call, error: Exception) -> None:
        if not connection.open:  # it may go on with the next one
            await context.abort(grpc.StatusCode.UNAVAILABLE, _NO_STREAM)
        self.counters.refused_call("transfer")
        name, kind = connection.name, type(error).__name__
        self._repeats.warn(name, kind, "a transfer of %s failed: %s", name, error)
        if isinstance(error, Unreadable):
            self.counters.note_offence(connection.client, str(error))
            self._put(Offence(connection.client, str(error)))
        await context.abort(transfer.status_code(error), str(error)[:500])
