"""A server of one model and one update, whose connections break as a test wants."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import grpc
import pytest
from grpc import aio

from fedpace.core.errors import PeerError
from fedpace.net import federation_pb2 as pb
from fedpace.net import transfer
from fedpace.net.pieces import Piece
from fedpace.net.service import OPTIONS, Stub, handlers
from fedpace.net.transfer import PIECE_BYTES, pieces, receive
from fedpace.remote.spool import Spool


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path, MOST)


DATA = random.Random(1).randbytes(6 * PIECE_BYTES + 12345)
MOST = 2 * len(DATA)
CHANNEL = (
    *OPTIONS,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 50),
)


class Server:
    """A server with one model, as real ones answer, but for what a test asks of it.

    breaks: after how many pieces the next transfers break off; damage: number of the pieces, counted
    over all transfers, that arrive damaged; asked: offsets of the fetches; taken: bytes of all pieces
    that went through.
    """

    def __init__(self, spool: Spool) -> None:
        self.spool, self.data = spool, DATA
        self.breaks: list[int] = []
        self.damage: set[int] = set()
        self.breaks_with = grpc.StatusCode.UNAVAILABLE
        self.asked: list[int] = []
        self.offered: list[int] = []
        self.count = self.taken = 0
        self.metadata: list[tuple[str, str]] = []
        self.control = self.status = None

    async def answer(self, context: Any, call: Awaitable[Any]) -> Any:
        self.metadata += [pair for pair in context.invocation_metadata() if pair[0] == "token"]
        try:
            return await call
        except (PeerError, OSError) as error:
            await context.abort(transfer.status_code(error), str(error))

    async def admit(self, context: Any) -> None:
        pass

    async def fetch(self, _: None, request: pb.FetchRequest, context: Any) -> AsyncIterator[Piece]:
        self.asked.append(request.offset)
        left = self.breaks.pop(0) if self.breaks else -1
        try:
            async for piece in pieces(request.task, self.data, request.offset):
                if left == 0:
                    await context.abort(self.breaks_with, "breaks off")
                left -= 1
                yield await self.pass_through(piece)
        except PeerError as error:
            await context.abort(transfer.status_code(error), str(error))

    async def offer(self, _: None, request: pb.OfferRequest, context: Any) -> pb.OfferReply:
        if request.task == 99:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "task 99 is over")
        offer = asyncio.to_thread(self.spool.offer, request.task, request.size, request.sha256)
        self.offered.append(await self.answer(context, offer))
        return pb.OfferReply(offset=self.offered[-1])

    async def send(self, _: None, requests: AsyncIterator[Piece], context: Any) -> pb.SendReply:
        left = self.breaks.pop(0) if self.breaks else -1

        async def through() -> AsyncIterator[Piece]:
            nonlocal left
            async for request in requests:
                if left == 0:
                    await context.abort(self.breaks_with, "breaks off")
                left -= 1
                yield await self.pass_through(request)

        return await self.answer(context, receive(through(), self.spool, lambda task: task < 100))

    async def pass_through(self, piece: Piece) -> Piece:
        self.count += 1
        self.taken += len(piece.data)
        if self.count in self.damage:
            return replace(piece, data=b"?" + piece.data[1:])
        return piece


@asynccontextmanager
async def listening(server: Server, port: int = 0) -> AsyncIterator[int]:
    listener = aio.server(options=OPTIONS)
    listener.add_generic_rpc_handlers((handlers(server),))
    port = listener.add_insecure_port(f"127.0.0.1:{port}")
    await listener.start()
    try:
        yield port
    finally:
        await listener.stop(0)


@asynccontextmanager
async def cut_off(port: int, lengths: list[int]) -> AsyncIterator[int]:
    """A way to the server whose connections are cut after so many bytes, in either direction."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int) -> None:
        while left > 0 and (data := await reader.read(min(left, 1 << 16))):
            writer.write(data)
            await writer.drain()
            left -= len(data)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = lengths.pop(0) if lengths else 1 << 40
        there = await asyncio.open_connection("127.0.0.1", port)
        ways = [pump(reader, there[1], left), pump(there[0], writer, left)]
        tasks = [asyncio.create_task(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in (writer, there[1]):
            one.transport.abort()
            with suppress(ConnectionError):
                await one.wait_closed()

    connections = set[asyncio.Task[None]]()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(connect(reader, writer)))

    way = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield way.sockets[0].getsockname()[1]
    finally:
        way.close()
        await asyncio.gather(*connections)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await test

    asyncio.run(bounded())


def with_server(spool: Spool, test: Callable[[Server, Stub], Coroutine[Any, Any, None]]) -> None:
    async def connected() -> None:
        server = Server(spool)
        async with (
            listening(server) as port,
            aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL) as channel,
        ):
            await test(server, Stub(channel))

    run(connected())


def request(task: int, offset: int, data: bytes, crc: int | None = None) -> Piece:
    made = Piece.of(task, offset, data)
    return made if crc is None else replace(made, crc=crc)
