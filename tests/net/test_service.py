"""Handlers of calls, without a connection."""

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("grpc")

from grpc import aio

from fedpace.net.service import SERVICE, handlers

CALLS = ("Control", "Fetch", "Offer", "Send", "Status")


class GoneWhenAnswered:
    """A servicer that turns everybody away, when they have gone already; grpc.aio raises this then."""

    async def admit(self, context):
        raise aio.InternalError("execute_batch")


class GoneLater:
    """A servicer that lets everybody in, and cannot answer."""

    async def admit(self, context):
        return "somebody"

    async def answer(self, *_):
        raise aio.InternalError("execute_batch")

    control = offer = send = status = answer

    async def fetch(self, *_):
        raise aio.InternalError("execute_batch")
        yield


async def one_message():
    yield b""  # of every kind of message, with nothing in it


@pytest.mark.parametrize("servicer", [GoneWhenAnswered, GoneLater])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_whose_peer_is_gone_is_cancelled_and_no_error_of_the_server(servicer, name):
    """grpc.aio logs whatever else a handler raises, with a traceback."""
    told = SimpleNamespace(method=f"/{SERVICE}/{name}", invocation_metadata=())
    handler = handlers(servicer()).service(told)
    call = handler.stream_stream or handler.stream_unary

    async def carried_out():
        answered = call(one_message(), None)
        if hasattr(answered, "__anext__"):
            await anext(answered)
        else:
            await answered

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(carried_out())
