"""A client: a control stream that is kept up, and beside it a thread that trains.

The stream is one coroutine, training one thread; they meet in `Orders` and in calls that the loop makes
for the thread. A connection that breaks is made again, with pauses that grow; training goes on
meanwhile, and what is done is sent when the server is back. Model and data stay warm between tasks.
"""

import asyncio
import logging
import math
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import grpc
import numpy as np
from grpc import aio

from fedpace.core.errors import ConfigError, FedpaceError, PeerError
from fedpace.learn.orders import Open, Orders, Outcome
from fedpace.net import arrays, transfer, wire
from fedpace.net import federation_pb2 as pb
from fedpace.net.gate import ClientKeys
from fedpace.net.service import OPTIONS, Stub

log = logging.getLogger("fedpace.client")

INSTANCE = "fedpace-instance"
_PAUSE_S = 0.2
_MOST_PAUSE_S = 15.0
_SETTLED_S = 2.0
"""A connection that held for so long was none of a server that turns us away, or keeps falling over."""
_MOST_SULK_S = 30.0
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)

_MOST_MODEL_BYTES = 1 << 36
_TELLING_BYTES = 1 << 16
"""An upload of fewer bytes says how long calls take, and nothing of the line."""
_BROKEN = (aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError)
"""What a stream says that is over."""

Arrays = dict[str, np.ndarray]
Say = Callable[[pb.FromClient], Awaitable[None]]
T = TypeVar("T")


class Refusal(FedpaceError):
    """The server does not let this client take part, and asking again would not help."""


class NothingDone(FedpaceError):
    """A task's time was over before there was anything to send."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a task has come to, and its update as arrays; None: there is nothing to send."""

    outcome: Outcome
    update: Arrays | None


class Trainee(Protocol):
    """What trains; all but `samples` and `model` is called in one thread of its own.

    model: digest of the layers; prepare: settings are those of local training, as JSON, client is the
    number that draws are keyed with; train: None where the task was cancelled.
    """

    @property
    def samples(self) -> int: ...
    @property
    def model(self) -> str: ...
    def prepare(self, settings: str, seed: int, client: int) -> None: ...
    def batches(self, batch_size: int) -> int: ...
    def train(
        self,
        opened: Open,
        weights: Arrays,
        orders: Orders,
        on_profile: Callable[[float], None],
        on_step: Callable[[int], None],
    ) -> Result | None: ...


@dataclass(eq=False)
class Job:
    """A task that the client has, and what pursues it.

    profile: what its probe has told; ready: what is to be reported, once the server has the update.
    """

    opened: Open
    orders: Orders = field(default_factory=Orders)
    worked: bool = False
    cancelled: bool = False
    profile: pb.FromClient | None = None
    ready: pb.FromClient | None = None
    pursuit: "asyncio.Task[None] | None" = None

    def cancel(self) -> None:
        """Give it up: a transfer ends now, training at its next batch."""
        self.cancelled = True
        self.orders.cancel()
        if self.pursuit is not None:
            self.pursuit.cancel()


class Client:
    """Takes part in a federation until it is told that it is over, or `stop`.

    address: HOST:PORT; keys: None for a plain connection; patience_s: without a server, in a row.
    """

    def __init__(
        self,
        address: str,
        name: str,
        trainee: Trainee,
        keys: ClientKeys | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = math.inf,
    ) -> None:
        self._address, self._name, self._trainee, self._keys = address, name, trainee, keys
        self._patience_s = patience_s
        self._clock = clock
        self._instance = uuid.uuid4().hex
        self._run = ""
        self._prepared: tuple[str, asyncio.Future[None]] | None = None
        self._thread = ThreadPoolExecutor(1, "fedpace-train")
        self._jobs: dict[int, Job] = {}
        self._pursuits: set[asyncio.Task[None]] = set()
        self._outbox: asyncio.Queue[pb.FromClient] = asyncio.Queue()
        self._connected = asyncio.Event()
        self._connected_at = self._last_with_us = 0.0
        self._failures = 0
        """Tasks in a row that failed."""
        self._latency_s = 0.0
        self._up_s_per_byte: float | None = None
        self._doing = (0, 0)
        self._beats: dict[int, float] = {}
        self.over: str | None = None
        """Why the federation has ended."""

    async def take_part(self) -> str:
        """Stay with the server; the reason why it is over. Refusal where it does not want us."""
        pause_s = _PAUSE_S
        self._last_with_us = self._clock()
        channel = self._channel()
        self._stub = Stub(channel)
        try:
            while self.over is None:
                self._connected_at = self._clock()
                await self._try_to_stay()
                if self.over is None:
                    away_s = self._clock() - self._last_with_us
                    if away_s > self._patience_s:
                        raise Refusal(f"nobody has taken us in at {self._address} for {away_s:.0f} s")
                    if self._clock() - self._connected_at > _SETTLED_S:
                        pause_s = _PAUSE_S
                    await asyncio.sleep(pause_s * random.uniform(0.8, 1.2))  # not all at once
                    pause_s = min(2 * pause_s, _MOST_PAUSE_S)
        finally:
            await self.stop()
            await channel.close(None)
        return self.over

    async def _try_to_stay(self) -> None:
        """One control stream, whatever becomes of it."""
        task = asyncio.current_task()
        try:
            await self._stay()
            if self.over is None:
                log.warning("the server ended the connection; trying again")
        except (*_BROKEN, TimeoutError, OSError) as error:
            log.warning("no connection to %s: %s", self._address, why(error))
        except PeerError as error:
            log.warning("%s", error)
        except asyncio.CancelledError:
            # So grpc says that the call was cancelled, which may have been done at the other end.
            if task is None or task.cancelling():
                raise
            log.warning("no connection to %s: the call was cancelled", self._address)

    async def stop(self) -> None:
        """Leave: what is being trained is given up."""
        for job in self._jobs.values():
            job.cancel()
        for pursuit in list(self._pursuits):
            pursuit.cancel()
        if self._pursuits:
            await asyncio.wait(self._pursuits)
        self._thread.shutdown(wait=True, cancel_futures=True)

    # The stream

    async def _stay(self) -> None:
        """One control stream, from hello to its end."""
        call = self._stub.control(None, metadata=self._metadata())
        helpers: list[asyncio.Task[None]] = []
        try:
            hello = pb.Hello(
                name=self._name, run=self._run, model=self._trainee.model, instance=self._instance
            )
            async with asyncio.timeout(20):
                await call.write(pb.FromClient(hello=hello))
                first = await call.read()
            welcome = self._welcomed(first)
            if welcome is None:
                return
            writing = asyncio.Lock()

            async def say(message: pb.FromClient) -> None:
                async with writing:  # grpc takes one at a time
                    await call.write(message)

            ready = asyncio.create_task(self._get_ready(say, welcome))
            # What cannot train has no business with the server.
            ready.add_done_callback(lambda done: call.cancel() if _gave_up(done) else None)
            helpers += [asyncio.create_task(self._beat(say, welcome.beat_s)), ready]
            async for message in _messages(call, 4 * welcome.beat_s):
                self._hear(message)
                if self.over is not None:
                    return
        finally:
            if self._connected.is_set():
                self._last_with_us = self._clock()
            self._connected.clear()
            await _end(helpers)
            call.cancel()

    async def _get_ready(self, say: Say, welcome: pb.Welcome) -> None:
        """Build what trains, tell the server, and from then on what there is to tell."""
        await self._prepare(welcome)
        self._run = welcome.run
        await say(pb.FromClient(ready=pb.Ready(samples=self._trainee.samples)))
        log.info("connected to %s as client %d", self._address, welcome.client)
        self._connected_at = self._clock()
        await self._write(say)

    def _channel(self) -> aio.Channel:
        options = [*OPTIONS, *_KEEPALIVE]
        if self._keys is None:
            return aio.insecure_channel(self._address, options=options)
        return aio.secure_channel(self._address, self._keys.credentials(), options=options)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        own = ((INSTANCE, self._instance),)
        return own if self._keys is None else (*own, *self._keys.metadata())

    def _welcomed(self, first: Any) -> pb.Welcome | None:
        """None: it is over."""
        if not isinstance(first, pb.FromServer):
            raise PeerError("the server ended the conversation without a word")
        if first.HasField("refused"):
            self._refused(first.refused)
        if first.HasField("bye"):
            self.over = first.bye.reason
            return None
        if not first.HasField("welcome"):
            raise PeerError(f"the server began with {first.WhichOneof('body')} instead of a welcome")
        return first.welcome

    def _refused(self, refused: pb.Refused) -> None:
        if refused.for_good:
            raise Refusal(
                f"the server does not let us take part: {refused.reason or 'our keys may be revoked'}"
            )
        raise PeerError(f"the server turned us away: {refused.reason}")

    async def _prepare(self, welcome: pb.Welcome) -> None:
        """Build what trains, once; with another run or other settings anew, from nothing."""
        wanted = f"{welcome.seed} {welcome.client} {welcome.settings}"
        if self._run not in ("", welcome.run):
            self._forget_all()
        if self._prepared is None or self._prepared[0] != wanted:
            self._forget_all()
            made = asyncio.get_running_loop().run_in_executor(
                self._thread, self._trainee.prepare, welcome.settings, welcome.seed, welcome.client
            )
            self._prepared = wanted, made
        try:
            await asyncio.shield(self._prepared[1])  # it goes on if this connection breaks
        except Exception as error:  # the same would happen next time
            log.debug("getting ready failed", exc_info=True)
            raise Refusal(f"this client cannot train: {type(error).__name__}: {error}") from error

    def _forget_all(self) -> None:
        for job in self._jobs.values():
            job.cancel()
        self._jobs.clear()

    async def _beat(self, say: Say, every_s: float) -> None:
        number = 0
        while True:
            number += 1
            await say(self._new_beat(number))
            await asyncio.sleep(every_s)

    def _new_beat(self, number: int) -> pb.FromClient:
        self._beats = {number: self._clock()}
        task, steps = self._doing
        beat = pb.Beat(number=number, task=task, steps=steps, latency_s=self._latency_s)
        return pb.FromClient(beat=beat)

    async def _write(self, say: Say) -> None:
        await self._connected.wait()
        while True:
            message = await self._outbox.get()
            await say(message)
            if message.HasField("failed"):
                # Should it be lost on its way, the server gives the task again.
                self._jobs.pop(message.failed.task, None)

    def _hear(self, message: pb.FromServer) -> None:
        match message.WhichOneof("body"):
            case "start":
                self._go_on(set(message.start.held))
                self._outbox.put_nowait(self._new_beat(0))  # the first model is timed with its answer
            case "beat":
                sent = self._beats.pop(message.beat.number, None)
                if sent is not None and self._connected.is_set():  # getting ready keeps answers waiting
                    trip_s = (self._clock() - sent) / 2
                    self._latency_s = min(trip_s, self._latency_s or trip_s) * 0.9 + trip_s * 0.1
            case "probe":
                probe = message.probe
                most = probe.max_epochs if probe.HasField("max_epochs") else None
                self._open(Open(probe.task, probe.version, probe.batch_size, True, probe.go_on, most))
            case "train":
                self._work(message.train)
            case "cancel":
                job = self._jobs.pop(message.cancel.task, None)
                if job is not None:
                    job.cancel()
            case "accepted":
                self._jobs.pop(message.accepted.task, None)
            case "refused":
                if not message.refused.HasField("task"):
                    self._refused(message.refused)
                job = self._jobs.pop(message.refused.task, None)
                if job is not None:
                    job.cancel()
                log.warning("our report was refused: %s", message.refused.reason)
            case "bye":
                self.over = message.bye.reason
            case other:
                raise PeerError(f"the server said {other}, which has no place here")

    def _go_on(self, held: set[int]) -> None:
        """We take part; tasks that the server does not know any more are given up."""
        for task in set(self._jobs) - held:
            self._jobs.pop(task).cancel()
        while not self._outbox.empty():
            self._outbox.get_nowait()  # said to a connection that is gone; what counts is said again
        for job in self._jobs.values():
            if job.ready is not None:
                self._outbox.put_nowait(job.ready)
            elif job.profile is not None and not job.worked:
                self._outbox.put_nowait(job.profile)
        self._connected.set()

    # Tasks

    def _open(self, opened: Open) -> Job:
        job = self._jobs.get(opened.task)
        if job is None:
            job = self._jobs[opened.task] = Job(opened)
            job.pursuit = asyncio.create_task(self._pursue(job))
            self._pursuits.add(job.pursuit)
            job.pursuit.add_done_callback(self._pursuits.discard)
        return job

    def _work(self, train: pb.Train) -> None:
        stop_at = self._clock() + train.left_s - self._latency_s if train.HasField("left_s") else None
        work = wire.work(train, stop_at)
        job = self._open(Open(train.task, train.version, train.batch_size))
        if not job.worked:  # it is said again after a connection broke
            job.worked = True
            job.orders.work(work)

    async def _pursue(self, job: Job) -> None:
        """One task from its model to its report."""
        task = job.opened.task
        try:
            await self._carry_out(job)
            self._failures = 0
        except Exception as error:  # also what the trainee's own code does wrong
            if job.cancelled:
                return
            log.warning("task %d failed: %s", task, error, exc_info=not isinstance(error, FedpaceError))
            # A policy may give the next task at once: what fails every time must not do so for nothing.
            await asyncio.sleep(min(2.0**self._failures - 1, _MOST_SULK_S))
            self._failures += not isinstance(error, NothingDone)
            reason = f"{type(error).__name__}: {error}"[:500]
            self._report(job, pb.FromClient(failed=pb.Failed(task=task, reason=reason)))
        finally:
            self._doing = (0, 0)

    async def _carry_out(self, job: Job) -> None:
        loop, task = asyncio.get_running_loop(), job.opened.task
        data, down = await self._with_server(
            job, lambda: transfer.fetch(self._stub, task, _MOST_MODEL_BYTES, self._metadata())
        )
        weights = arrays.unpack(data, _MOST_MODEL_BYTES)
        down_s = down.seconds + self._latency_s
        size = max(len(data), 1)
        if self._up_s_per_byte is None:
            self._up_s_per_byte = down.seconds / size

        def rates(batch_s: float) -> pb.Rates:
            up_s = (self._up_s_per_byte or 0.0) * size + self._latency_s
            batches = self._trainee.batches(job.opened.batch_size)
            return pb.Rates(
                batch_s=batch_s, batches=batches, down_s=down_s, up_s=up_s, latency_s=self._latency_s
            )

        def profiled(batch_s: float) -> None:
            said = pb.FromClient(profiled=pb.Profiled(task=task, rates=rates(batch_s)))
            loop.call_soon_threadsafe(self._tell_profile, job, said)

        def stepped(steps: int) -> None:
            self._doing = (task, steps)

        result = await loop.run_in_executor(
            self._thread, self._trainee.train, job.opened, weights, job.orders, profiled, stepped
        )
        if result is None or job.cancelled:
            return
        if result.update is None:
            raise NothingDone("no layer was done in time")
        packed = await loop.run_in_executor(None, arrays.pack, result.update)
        moved = await self._with_server(
            job, lambda: transfer.send(self._stub, task, packed, self._metadata())
        )
        if moved.bytes >= _TELLING_BYTES:
            self._up_s_per_byte = moved.seconds / moved.bytes
        done = wire.done(task, job.opened.version, result.outcome, rates(result.outcome.batch_s))
        self._report(job, pb.FromClient(done=done))

    def _tell_profile(self, job: Job, message: pb.FromClient) -> None:
        if not job.cancelled:
            job.profile = message
            self._outbox.put_nowait(message)

    def _report(self, job: Job, message: pb.FromClient) -> None:
        if not job.cancelled:
            job.ready = message
            self._outbox.put_nowait(message)

    async def _with_server(self, job: Job, call: Callable[[], Awaitable[T]]) -> T:
        """A transfer; one that broke too often is taken up again when the server is back."""
        pursuit = asyncio.current_task()
        while True:
            await self._connected.wait()
            try:
                return await call()
            except transfer.GaveUp as error:
                log.warning("%s", error)
            except asyncio.CancelledError:
                # Of the call, perhaps at the other end; or of this job.
                if pursuit is None or pursuit.cancelling():
                    raise
                log.warning("a transfer of task %d was cancelled", job.opened.task)
            await asyncio.sleep(1.0)


async def _messages(call: Any, quiet_s: float) -> AsyncIterator[pb.FromServer]:
    """What the server says, until it ends; TimeoutError if it falls silent."""
    while True:
        async with asyncio.timeout(quiet_s):
            message = await call.read()
        if not isinstance(message, pb.FromServer):  # the end
            return
        yield message


def _gave_up(task: "asyncio.Task[None]") -> bool:
    return not task.cancelled() and isinstance(task.exception(), Refusal)


async def _end(tasks: "list[asyncio.Task[None]]") -> None:
    for task in tasks:
        task.cancel()
    for found in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(found, Exception) and not isinstance(found, _BROKEN):
            raise found


def why(error: Exception) -> str:
    """A broken call, for people."""
    if isinstance(error, aio.AioRpcError):
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return "the server does not know us: check our keys, they may be revoked"
        return f"{error.code().name.lower()}: {error.details()}"
    return str(error) or type(error).__name__


def check_address(address: str) -> str:
    """HOST:PORT, or a ConfigError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"the address is {address!r}; give HOST:PORT, such as 10.0.0.5:8850")
    return address
