"""A client that takes part and means harm: straight at the server's handlers, and through gRPC."""

import asyncio
from contextlib import suppress

import grpc
from grpc import aio

from fedpace.net import federation_pb2 as pb
from fedpace.net.pieces import Piece
from fedpace.net.service import INSTANCE, SERVICE
from fedpace.remote import packing as arrays
from tests.net.garbage import MALLORY, good, honest
from tests.net.rig import LONG_S, SAMPLES, digest


class Context:
    """What gRPC gives to a handler, as far as ours look at it."""

    def __init__(self, instance=MALLORY):
        self.instance = instance
        self.replies = asyncio.Queue()
        self.code = None

    def invocation_metadata(self):
        return ((INSTANCE, self.instance),)

    def peer(self):
        return "nowhere"

    async def write(self, message):
        self.replies.put_nowait(message)

    async def abort(self, code, details=""):
        self.code = code
        raise aio.AbortError(details)


class Mallory:
    """A client that takes part, straight at the handlers; all of it runs in the server's loop.

    task, version: the last that it was given; orders: how many it was; refused: its reports that were
    not used.
    """

    def __init__(self, server):
        self.server = server
        self.task = self.version = self.orders = self.refused = self.beats = 0
        self.handler = None

    def begin(self, hello, ready):
        """A new stream."""
        self.requests, self.context = asyncio.Queue(), Context()
        self.handler = asyncio.create_task(self.server.control(None, self._queued(), self.context))
        self.say(hello=hello)
        self.say(ready=ready)

    async def join(self):
        hello = pb.Hello(name="mallory", instance=MALLORY, model=digest())
        self.begin(hello, pb.Ready(samples=SAMPLES))
        assert await self.hear("start")
        assert await self.hear("train", "probe")

    async def _queued(self):
        while (message := await self.requests.get()) is not None:
            yield message

    def say(self, **body):
        self.requests.put_nowait(pb.FromClient(**body))

    async def hear(self, *kinds):
        """The next message of these kinds, or None at the end of the stream."""
        while True:
            getting = asyncio.create_task(self.context.replies.get())
            async with asyncio.timeout(LONG_S):
                await asyncio.wait({getting, self.handler}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                getting.cancel()
                await self.handler  # it must have ended without an error
                return None
            message = getting.result()
            kind = message.WhichOneof("body")
            if kind in ("probe", "train"):
                order = getattr(message, kind)
                self.task, self.version = order.task, order.version
                self.orders += 1
            self.refused += kind == "refused" and message.refused.HasField("task")
            if kind in kinds:
                return message

    async def try_out(self, message):
        """Say something and wait for what comes of it."""
        body = getattr(message, message.WhichOneof("body") or "hello")
        ends = isinstance(body, pb.Done | pb.Failed) and body.task == self.task
        self.requests.put_nowait(message)
        self.beats += 1
        number = 10**9 + self.beats
        self.say(beat=pb.Beat(number=number))
        while (heard := await self.hear("beat")) is not None and heard.beat.number != number:
            pass
        if heard is None:
            await self.join()
        while ends and self.task == body.task:
            await self.hear("train", "probe")

    def done(self):
        """What it would rightly say of its task."""
        return honest("done", self.task, self.version)

    async def call(self, name, request, instance=MALLORY):
        """One of the other calls: what it answers, or the code that it ends with."""
        context = Context(instance)
        try:
            async with asyncio.timeout(LONG_S):
                if name == "Fetch":
                    return [piece async for piece in self.server.fetch(None, request, context)]
                if name == "Send":
                    return await self.server.send(None, one_by_one(request), context)
                return await getattr(self.server, name.lower())(None, request, context)
        except aio.AbortError:
            assert context.code is not None
            return context.code

    async def upload(self, data):
        """A whole file, as an update."""
        offer = pb.OfferRequest(task=self.task, size=len(data), sha256=arrays.digest(data))
        assert await self.call("Offer", offer) == pb.OfferReply()
        sent = await self.call("Send", [Piece.of(self.task, 0, data)])
        assert sent == pb.SendReply(offset=len(data), complete=True)

    async def bring(self, data):
        """The same, and report it; the stream goes on."""
        await self.upload(data)
        await self.try_out(pb.FromClient(done=self.done()))


async def one_by_one(requests):
    for request in requests:
        yield request


class Raw:
    """The calls of a client, with bytes instead of messages."""

    def __init__(self, channel):
        at = f"/{SERVICE}/"
        self.control = channel.stream_stream(at + "Control")
        self.fetch = channel.unary_stream(at + "Fetch")
        self.offer = channel.unary_unary(at + "Offer")
        self.send = channel.stream_unary(at + "Send")
        self.status = channel.unary_unary(at + "Status")

    async def call(self, name, requests, metadata):
        """How a call ends; requests: what is written before its answers are read."""
        call = getattr(self, name.lower())
        try:
            async with asyncio.timeout(LONG_S):
                if name in ("Offer", "Status"):
                    await call(requests[0], metadata=metadata)
                elif name == "Fetch":
                    async for _ in call(requests[0], metadata=metadata):
                        pass
                else:
                    stream = call(metadata=metadata)
                    await self.written(stream, requests)
                    if name == "Send":
                        await stream
                    while name == "Control" and await stream.read() is not aio.EOF:
                        pass
                    return await stream.code()
        except aio.AioRpcError as error:
            return error.code()
        return grpc.StatusCode.OK

    async def join(self):
        """The task that is given to who joins."""
        stream = self.control(metadata=((INSTANCE, MALLORY),))
        for request in good("Control", 0)[:2]:
            await stream.write(request)
        async with asyncio.timeout(LONG_S):
            while not (heard := pb.FromServer.FromString(await stream.read())).HasField("train"):
                pass
        return heard.train.task

    async def written(self, stream, requests):
        with suppress(aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError):
            for request in requests:
                await stream.write(request)
            await stream.done_writing()
