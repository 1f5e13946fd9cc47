"""The Federation service: its five calls, for a server and for a client.

Written out instead of generated: the generated code is tied to one release of grpcio, and untyped. A
server takes all calls as streams of bytes, which on the wire they are: so its handlers run before
anything is read, and nobody's bytes are parsed, or even waited for, who has not been let in. Messages
are protobuf's, but for pieces of models and updates.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message
from grpc import aio

from fedpace.net import federation_pb2 as pb
from fedpace.net.pieces import Piece, Unreadable

SERVICE = "fedpace.v1.Federation"
MESSAGE_BYTES = 2 << 20
"""The largest message: a piece of a transfer, with room to spare."""
OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES),
    ("grpc.max_send_message_length", MESSAGE_BYTES),
)
SERVER_OPTIONS = (
    *OPTIONS,
    # Of one connection; who is known has a bound of its own. Clients in one process can share one.
    ("grpc.max_concurrent_streams", 100),
    # Who connects and proves nothing, or asks nothing, does not stay.
    ("grpc.server_handshake_timeout_ms", 5_000),
    ("grpc.max_connection_idle_ms", 60_000),
)
INSTANCE = "fedpace-instance"
"""Metadata of calls: the process of a client that they belong to."""
REQUEST_S = 10.0
"""How long the message of a call that has only one may take."""

Call: TypeAlias = "aio.ServicerContext[Any, Any]"
Caller = TypeVar("Caller")
M = TypeVar("M", bound=Message)
T_co = TypeVar("T_co", covariant=True)


class Servicer(Protocol[Caller]):
    """The calls of federation.proto that a server answers, as grpc.aio has them.

    admit: who makes a call; it does not return for those who may not. The calls are told.
    """

    async def admit(self, context: Call) -> Caller: ...
    async def control(
        self, caller: Caller, requests: AsyncIterator[pb.FromClient], context: Call
    ) -> None: ...
    def fetch(
        self, caller: Caller, request: pb.FetchRequest, context: Call
    ) -> AsyncIterator[Piece]: ...
    async def offer(self, caller: Caller, request: pb.OfferRequest, context: Call) -> pb.OfferReply: ...
    async def send(
        self, caller: Caller, requests: AsyncIterator[Piece], context: Call
    ) -> pb.SendReply: ...
    async def status(
        self, caller: Caller, request: pb.StatusRequest, context: Call
    ) -> pb.StatusReply: ...


class Incoming(Generic[T_co]):
    """Messages of a stream as they are asked for. read: raises Unreadable for bytes that are none."""

    def __init__(self, read: Callable[[bytes], T_co], requests: AsyncIterator[bytes]) -> None:
        self._read, self._requests = read, requests

    def __aiter__(self) -> "Incoming[T_co]":
        return self

    async def __anext__(self) -> T_co:
        return self._read(await anext(self._requests))


def _parse(kind: type[M], data: bytes) -> M:
    try:
        return kind.FromString(data)
    except DecodeError:
        raise Unreadable(f"{len(data)} bytes are no {kind.DESCRIPTOR.name}") from None


def handlers(servicer: Servicer[Caller]) -> "grpc.GenericRpcHandler[Any, Any]":
    """Handlers of all calls, for `aio.Server.add_generic_rpc_handlers`."""

    async def control(requests: AsyncIterator[bytes], context: Call) -> None:
        with _cancelled_if_gone():
            caller = await servicer.admit(context)
            messages = Incoming(partial(_parse, pb.FromClient), requests)
            await servicer.control(caller, messages, context)

    async def fetch(requests: AsyncIterator[bytes], context: Call) -> AsyncIterator[Piece]:
        with _cancelled_if_gone():
            caller = await servicer.admit(context)
            request = await read_single(pb.FetchRequest, requests, context)
            async for piece in servicer.fetch(caller, request, context):
                yield piece

    async def offer(requests: AsyncIterator[bytes], context: Call) -> pb.OfferReply:
        with _cancelled_if_gone():
            caller = await servicer.admit(context)
            request = await read_single(pb.OfferRequest, requests, context)
            return await servicer.offer(caller, request, context)

    async def send(requests: AsyncIterator[bytes], context: Call) -> pb.SendReply:
        with _cancelled_if_gone():
            caller = await servicer.admit(context)
            return await servicer.send(caller, Incoming(Piece.decode, requests), context)

    async def status(requests: AsyncIterator[bytes], context: Call) -> pb.StatusReply:
        with _cancelled_if_gone():
            caller = await servicer.admit(context)
            request = await read_single(pb.StatusRequest, requests, context)
            return await servicer.status(caller, request, context)

    both, up = grpc.stream_stream_rpc_method_handler, grpc.stream_unary_rpc_method_handler
    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "Control": both(control, None, pb.FromServer.SerializeToString),
            "Fetch": both(fetch, None, Piece.encode),
            "Offer": up(offer, None, pb.OfferReply.SerializeToString),
            "Send": up(send, None, pb.SendReply.SerializeToString),
            "Status": up(status, None, pb.StatusReply.SerializeToString),
        },
    )


@contextmanager
def _cancelled_if_gone() -> Iterator[None]:
    """Around a handler: its call is cancelled where the peer has gone before it could be answered.

    grpc does so itself where it knows already; else it logs an error of the server's, with a traceback.
    """
    try:
        yield
    except aio.InternalError as error:
        raise asyncio.CancelledError(f"the peer has gone: {error}") from error


async def read_single(kind: type[M], requests: AsyncIterator[bytes], context: Call) -> M:
    """Read the message of a call that has only one."""
    try:
        async with asyncio.timeout(REQUEST_S):
            return _parse(kind, await anext(requests))
    except (Unreadable, StopAsyncIteration) as error:
        reason = str(error) or "a call without a message"
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, reason)
        raise
    except TimeoutError:
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"no message for {REQUEST_S:g} s")
        raise


class Stub:
    """The calls that a client makes."""

    def __init__(self, channel: aio.Channel) -> None:
        at = f"/{SERVICE}/"
        self.control = channel.stream_stream(
            at + "Control", pb.FromClient.SerializeToString, pb.FromServer.FromString
        )
        self.fetch = channel.unary_stream(at + "Fetch", pb.FetchRequest.SerializeToString, Piece.decode)
        self.offer = channel.unary_unary(
            at + "Offer", pb.OfferRequest.SerializeToString, pb.OfferReply.FromString
        )
        self.send = channel.stream_unary(at + "Send", Piece.encode, pb.SendReply.FromString)
        self.status = channel.unary_unary(
            at + "Status", pb.StatusRequest.SerializeToString, pb.StatusReply.FromString
        )
