"""A client: a control stream that is kept up, and beside it a thread that trains (`net.client_tasks`).

A connection that breaks is made again, with pauses that grow; training goes on meanwhile, and what is
done is sent when the server is back.
"""

import asyncio
import itertools
import logging
import math
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
from grpc import aio

from fedpace.core.errors import ConfigError, FedpaceError, PeerError
from fedpace.learn.train.orders import TaskOpening
from fedpace.net import federation_pb2 as pb
from fedpace.net.client_tasks import MOST_MODEL_BYTES, ClientTasks, ServerLink
from fedpace.net.enrolment import RETRY_S, open_channel, renew
from fedpace.net.keys.gate import ClientKeys
from fedpace.net.service import INSTANCE, Stub
from fedpace.remote.trainee import Trainee

log = logging.getLogger("fedpace.client")

_MOST_BEATS = 16
"""Beats whose answers are waited for."""
_PAUSE_S = 0.2
_MOST_PAUSE_S = 15.0
_SETTLED_S = 2.0
"""A connection that held for so long was none of a server that turns us away, or keeps falling over."""
_LEAST_BEAT_S, _MOST_BEAT_S = 0.01, 3600.0
_KEEPALIVE = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    # How long connecting may take at the least: on a slow line it takes seconds, with TLS three times
    # there and back. Who is refused tries again after the initial backoff as before.
    ("grpc.min_reconnect_backoff_ms", 10_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)

_BROKEN = (aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError)
"""What a stream says that is over."""

Say = Callable[[pb.FromClient], Awaitable[None]]


class Refusal(FedpaceError):
    """The server does not let this client take part, and asking again would not help."""


class Client:
    """A client of a federation, until that ends or `stop` is called.

    address: HOST:PORT; keys: None for a plain connection; patience_s: without a server, in a row;
    most_model_bytes: a larger model is refused.
    """

    def __init__(
        self,
        address: str,
        name: str,
        trainee: Trainee,
        keys: ClientKeys | None = None,
        clock: Callable[[], float] = time.monotonic,
        patience_s: float = math.inf,
        most_model_bytes: int = MOST_MODEL_BYTES,
    ) -> None:
        self._address, self._name, self._trainee, self._keys = address, name, trainee, keys
        self._patience_s = patience_s
        self._clock = clock
        self._instance = uuid.uuid4().hex
        self._run = ""
        self._prepared: tuple[str, asyncio.Future[None]] | None = None
        self._link = ServerLink(self._metadata)
        self._tasks = ClientTasks(trainee, self._link, clock, most_model_bytes)
        self._channels: list[aio.Channel] = []
        """The last one is used; transfers that began with older keys end with them."""
        self._connected_at = self._last_with_us = 0.0
        self._tasks.on_task = self._measure_latency
        self._beats: dict[int, float] = {}
        """Number -> when it was sent, of beats that were not answered."""
        self._numbers = itertools.count(1)
        self.over: str | None = None
        """Why the federation has ended."""

    async def take_part(self) -> str:
        """Stay connected until the federation ends; why it did. Refusal if the server rejects us."""
        pause_s = _PAUSE_S
        self._last_with_us = self._clock()
        self._open_channel()
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
            for channel in self._channels:
                await channel.close(None)
        return self.over

    async def _try_to_stay(self) -> None:
        """Keep one control stream, and log how it ended."""
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
        """Leave the federation: training is given up."""
        await self._tasks.stop()

    # The stream

    async def _stay(self) -> None:
        """Keep one control stream, from hello to its end."""
        call = self._link.stub.control(None, metadata=self._metadata())
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
            helpers.append(asyncio.create_task(self._renew_keys(call.cancel)))
            # An answer to a beat is on its way for as long as the welcome was.
            answer_s = self._clock() - self._connected_at
            async for message in _messages(call, 4 * welcome.beat_s + answer_s):
                self._hear(message)
                if self.over is not None:
                    return
        finally:
            if self._link.connected.is_set():
                self._last_with_us = self._clock()
            self._link.connected.clear()
            await _end(helpers)
            call.cancel()

    async def _get_ready(self, say: Say, welcome: pb.Welcome) -> None:
        """Prepare the trainee, tell the server, then send what the outbox holds."""
        await self._prepare(welcome)
        self._run = welcome.run
        await say(pb.FromClient(ready=pb.Ready(samples=self._trainee.samples)))
        log.info("connected to %s as client %d", self._address, welcome.client)
        self._connected_at = self._clock()
        await self._write(say)

    def _open_channel(self) -> None:
        """Use a new channel with the keys that we have now."""
        self._channels.append(open_channel(self._address, self._keys, _KEEPALIVE))
        self._link.stub = Stub(self._channels[-1])

    async def _renew_keys(self, end_stream: Callable[[], object]) -> None:
        """Get other keys before ours end, and connect with them; until cancelled."""
        while self._keys is not None:
            fresh = await renew(self._channels[-1], self._keys)
            if fresh is not None:
                self._keys = fresh
                self._open_channel()
                end_stream()
                return
            await asyncio.sleep(RETRY_S)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        own = ((INSTANCE, self._instance),)
        return own if self._keys is None else (*own, *self._keys.metadata())

    def _welcomed(self, first: Any) -> pb.Welcome | None:
        """The welcome that a stream begins with; None: the federation has ended."""
        if not isinstance(first, pb.FromServer):
            raise PeerError("the server ended the conversation without a word")
        if first.HasField("refused"):
            self._refused(first.refused)
        if first.HasField("bye"):
            self.over = first.bye.reason
            return None
        if not first.HasField("welcome"):
            raise PeerError(f"the server began with {first.WhichOneof('body')} instead of a welcome")
        if not _LEAST_BEAT_S <= first.welcome.beat_s <= _MOST_BEAT_S:
            raise PeerError(
                f"the server wants a beat every {first.welcome.beat_s:g} s; expected are "
                f"{_LEAST_BEAT_S:g} to {_MOST_BEAT_S:g}"
            )
        return first.welcome

    def _refused(self, refused: pb.Refused) -> None:
        if refused.for_good:
            raise Refusal(
                f"the server does not let us take part: {refused.reason or 'our keys may be revoked'}"
            )
        raise PeerError(f"the server turned us away: {refused.reason}")

    async def _prepare(self, welcome: pb.Welcome) -> None:
        """Prepare the trainee once; anew for another run or other settings."""
        wanted = f"{welcome.seed} {welcome.client} {welcome.settings}"
        if self._run not in ("", welcome.run):
            self._tasks.forget_all()
        if self._prepared is None or self._prepared[0] != wanted:
            self._tasks.forget_all()
            made = asyncio.get_running_loop().run_in_executor(
                self._tasks.thread,
                self._trainee.prepare,
                welcome.settings,
                welcome.seed,
                welcome.client,
            )
            self._prepared = wanted, made
        try:
            await asyncio.shield(self._prepared[1])  # it goes on if this connection breaks
        except Exception as error:  # the same would happen next time
            log.debug("getting ready failed", exc_info=True)
            raise Refusal(f"this client cannot train: {type(error).__name__}: {error}") from error

    async def _beat(self, say: Say, every_s: float) -> None:
        while True:
            await say(self._new_beat())
            await asyncio.sleep(every_s)

    def _measure_latency(self) -> None:
        """Beat once more: the answer says how long messages take now."""
        self._link.outbox.put_nowait(self._new_beat())

    def _new_beat(self) -> pb.FromClient:
        number = next(self._numbers)
        self._beats[number] = self._clock()
        self._beats.pop(number - _MOST_BEATS, None)
        task, steps = self._tasks.doing
        beat = pb.Beat(number=number, task=task, steps=steps, latency_s=self._link.latency_s)
        return pb.FromClient(beat=beat)

    async def _write(self, say: Say) -> None:
        await self._link.connected.wait()
        while True:
            message = await self._link.outbox.get()
            await say(message)
            if message.HasField("failed"):
                # Should it be lost on its way, the server gives the task again.
                self._tasks.forget(message.failed.task)

    def _hear(self, message: pb.FromServer) -> None:
        match message.WhichOneof("body"):
            case "start":
                self._tasks.go_on(set(message.start.held))
                self._measure_latency()  # before the first model is on its way
            case "beat":
                sent = self._beats.pop(message.beat.number, None)
                link = self._link
                if sent is not None and link.connected.is_set():  # getting ready keeps answers waiting
                    link.trips.append((self._clock() - sent) / 2)
            case "probe":
                probe = message.probe
                most = probe.max_epochs if probe.HasField("max_epochs") else None
                self._tasks.open(
                    TaskOpening(probe.task, probe.version, probe.batch_size, True, probe.go_on, most)
                )
            case "train":
                self._tasks.work(message.train)
            case "cancel":
                self._tasks.give_up(message.cancel.task)
            case "accepted":
                self._tasks.forget(message.accepted.task)
            case "refused":
                if not message.refused.HasField("task"):
                    self._refused(message.refused)
                self._tasks.give_up(message.refused.task)
                log.warning("our report was refused: %s", message.refused.reason)
            case "bye":
                self.over = message.bye.reason
            case other:
                raise PeerError(f"the server said {other}, which has no place here")


async def _messages(call: Any, quiet_s: float) -> AsyncIterator[pb.FromServer]:
    """Messages of the server, until the stream ends; TimeoutError if it falls silent."""
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
    """Why a call broke, in words for people."""
    if isinstance(error, aio.AioRpcError):
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            return "the server does not know us: check our keys, they may be revoked"
        return f"{error.code().name.lower()}: {error.details()}"
    return str(error) or type(error).__name__


def check_address(address: str) -> str:
    """Return the address if it is HOST:PORT; else a ConfigError."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"the address is {address!r}; give HOST:PORT, such as 10.0.0.5:8850")
    return address
