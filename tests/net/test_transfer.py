"""Transfers over a real server on this machine that breaks off, damages pieces and goes away."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from grpc import aio

from fedpace.core.errors import PeerError
from fedpace.net import federation_pb2 as pb
from fedpace.net import transfer
from fedpace.net.pieces import Piece
from fedpace.net.service import Stub
from fedpace.net.transfer import PIECE_BYTES, fetch, pieces, send
from fedpace.remote.spool import Spool
from tests.net.transfers import CHANNEL, DATA, MOST, Server, cut_off, listening, run, with_server

SOON = {"tries": 5, "pause_s": 0.01}


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path, MOST)


def test_a_model_goes_down_and_an_update_up(spool):
    async def test(server: Server, stub: Stub) -> None:
        came: list[int] = []
        data, down = await fetch(stub, 1, MOST, [("token", "x")], on_bytes=came.append)
        assert data == DATA
        assert data.readonly
        assert sum(came) == down.bytes == len(DATA)
        assert len(came) == 7
        up = await send(stub, 1, DATA, [("token", "x")])
        assert spool.path(1).read_bytes() == DATA
        assert up.bytes == len(DATA)
        assert 0 < down.seconds < 30
        assert 0 < up.seconds < 30
        assert server.metadata == [("token", "x")] * 2

    with_server(spool, test)


@pytest.mark.parametrize("size", [1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1])
def test_every_size_arrives(spool, size):
    async def test(server: Server, stub: Stub) -> None:
        server.data = DATA[:size]
        data, moved = await fetch(stub, 1, size)
        assert data == DATA[:size]
        assert moved.bytes == size
        await send(stub, 1, memoryview(DATA)[:size])
        assert spool.path(1).read_bytes() == DATA[:size]

    with_server(spool, test)


@pytest.mark.parametrize("code", ["UNAVAILABLE", "ABORTED", "RESOURCE_EXHAUSTED", "UNKNOWN"])
def test_a_fetch_that_breaks_off_goes_on_where_it_was(spool, code):
    async def test(server: Server, stub: Stub) -> None:
        server.breaks, server.breaks_with = [2, 0, 3], grpc.StatusCode[code]
        data, moved = await fetch(stub, 1, MOST, **SOON)
        assert data == DATA
        assert server.asked == [0, 2 * PIECE_BYTES, 2 * PIECE_BYTES, 5 * PIECE_BYTES]
        assert server.taken == moved.bytes == len(DATA)

    with_server(spool, test)


def test_a_send_that_breaks_off_goes_on_where_it_was(spool):
    async def test(server: Server, stub: Stub) -> None:
        server.breaks = [2, 0, 3]
        moved = await send(stub, 1, DATA, **SOON)
        assert spool.path(1).read_bytes() == DATA
        assert server.offered == [0, 2 * PIECE_BYTES, 2 * PIECE_BYTES, 5 * PIECE_BYTES]
        assert server.taken == moved.bytes == len(DATA)

    with_server(spool, test)


def test_progress_gives_all_tries_back(spool):
    async def test(server: Server, stub: Stub) -> None:
        server.breaks = [1, 1, 1, 1, 1, 1]
        assert (await fetch(stub, 1, MOST, tries=2, pause_s=0.01))[0] == DATA
        server.breaks = [1, 1, 1, 1, 1, 1]
        await send(stub, 1, DATA, tries=2, pause_s=0.01)
        assert spool.path(1).read_bytes() == DATA

    with_server(spool, test)


@pytest.mark.parametrize("way", ["down", "up"])
def test_connections_that_are_cut_are_made_again(spool, way):
    async def test() -> None:
        server = Server(spool)
        async with (
            listening(server) as port,
            cut_off(port, [2_000_000, 300_000, 1_500_000]) as cut_port,
            aio.insecure_channel(f"127.0.0.1:{cut_port}", options=CHANNEL) as channel,
        ):
            if way == "down":
                data, moved = await fetch(Stub(channel), 1, MOST, tries=20, pause_s=0.05)
                assert data == DATA
            else:
                moved = await send(Stub(channel), 1, DATA, tries=20, pause_s=0.05)
                assert spool.path(1).read_bytes() == DATA
            assert moved.bytes == len(DATA)
            offsets = server.asked or server.offered
            assert offsets == sorted(offsets)
            assert len(offsets) >= 3
            assert offsets[-1] > 0

    run(test())


@pytest.mark.parametrize("way", ["down", "up"])
def test_a_server_that_is_away_for_a_moment_is_waited_for(spool, way):
    async def test() -> None:
        server, half = Server(spool), asyncio.Event()

        class Stuck(Server):
            async def pass_through(self, piece: Piece) -> Piece:
                await super().pass_through(piece)
                if self.count == 3:
                    half.set()
                    await asyncio.sleep(20)
                return piece

        first = Stuck(spool)
        stack = listening(first)
        port = await stack.__aenter__()
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL) as channel:
            stub = Stub(channel)
            if way == "down":
                moving = asyncio.create_task(fetch(stub, 1, MOST, tries=30, pause_s=0.02))
            else:
                moving = asyncio.create_task(send(stub, 1, DATA, tries=30, pause_s=0.02))
            await half.wait()
            await asyncio.sleep(0.3)  # for the first pieces to get there, which an end may overtake
            await stack.__aexit__(None, None, None)
            await asyncio.sleep(0.1)
            assert not moving.done()
            server.spool = Spool(spool.folder, MOST)
            async with listening(server, port):
                await moving
            if way == "down":
                assert moving.result()[0] == DATA
            else:
                assert server.spool.path(1).read_bytes() == DATA
            assert first.taken + server.taken < 2 * len(DATA)
            assert (server.asked or server.offered)[-1] > 0

    run(test())


def test_damaged_pieces_are_sent_again(spool):
    async def test(server: Server, stub: Stub) -> None:
        server.damage = {3}
        assert (await fetch(stub, 1, MOST, **SOON))[0] == DATA
        assert server.asked == [0, 2 * PIECE_BYTES]
        server.damage = {server.count + 4}
        await send(stub, 1, DATA, **SOON)
        assert spool.path(1).read_bytes() == DATA
        assert server.offered == [0, 3 * PIECE_BYTES]

    with_server(spool, test)


class Liar(Server):
    """Tells of a wrong digest as often as asked to."""

    lies = 1

    async def fetch(self, _: None, request: pb.FetchRequest, context: Any) -> AsyncIterator[Piece]:
        self.asked.append(request.offset)
        self.lies -= 1
        digest = bytes(32) if self.lies >= 0 else hashlib.sha256(DATA).digest()
        async for piece in pieces(request.task, DATA, request.offset, digest):
            yield piece


@pytest.mark.parametrize("lies", [1, 2])
def test_a_model_with_a_wrong_digest_is_fetched_once_more(spool, lies):
    async def test() -> None:
        server = Liar(spool)
        server.lies = lies
        async with (
            listening(server) as port,
            aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL) as channel,
        ):
            if lies == 1:
                assert (await fetch(Stub(channel), 1, MOST, **SOON))[0] == DATA
            else:
                with pytest.raises(PeerError, match="task 1 failed, and again from the beginning"):
                    await fetch(Stub(channel), 1, MOST, **SOON)
            assert server.asked == [0, 0]

    run(test())


def test_an_update_with_a_wrong_digest_is_sent_once_more(spool):
    async def test(server: Server, stub: Stub) -> None:
        spool.offer(1, len(DATA), hashlib.sha256(DATA).digest())
        (spool.folder / "1.part").write_bytes(bytes(1000))
        server.spool = Spool(spool.folder, MOST)
        await send(stub, 1, DATA, **SOON)
        assert server.spool.path(1).read_bytes() == DATA
        assert server.offered == [1000, 0]
        with pytest.raises(PeerError, match="task 2 failed, and again from the beginning: DATA_LOSS"):
            await send(stub, 2, DATA, sha256=bytes(32), **SOON)

    with_server(spool, test)


def test_an_update_that_is_all_there_is_only_finished(spool):
    async def test(server: Server, stub: Stub) -> None:
        spool.offer(1, len(DATA), hashlib.sha256(DATA).digest())
        (spool.folder / "1.part").write_bytes(DATA)
        server.spool = Spool(spool.folder, MOST)
        for _ in range(2):
            moved = await send(stub, 1, DATA)
            assert moved.bytes == 0
            assert server.spool.path(1).read_bytes() == DATA
        assert server.taken == 0

    with_server(spool, test)


def test_a_server_that_stays_away_is_given_up(spool):
    async def test() -> None:
        async with listening(Server(spool)) as port:
            pass
        async with aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL) as channel:
            with pytest.raises(PeerError, match="model of task 5 failed 3 times in a row: UNAVAILABLE"):
                await fetch(Stub(channel), 5, MOST, tries=3, pause_s=0.01)
            with pytest.raises(
                PeerError, match="update of task 5 failed 3 times in a row: UNAVAILABLE"
            ):
                await send(Stub(channel), 5, DATA, tries=3, pause_s=0.01)

    run(test())


def test_what_trying_cannot_change_is_not_tried_again(spool):
    async def test(server: Server, stub: Stub) -> None:
        server.breaks, server.breaks_with = [1], grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises(PeerError, match="task 1 failed: PERMISSION_DENIED: breaks off"):
            await fetch(stub, 1, MOST, tries=5, pause_s=100)
        with pytest.raises(PeerError, match="task 99 failed: FAILED_PRECONDITION: task 99 is over"):
            await send(stub, 99, DATA, tries=5, pause_s=100)
        with pytest.raises(PeerError, match=f"it has {len(DATA)} bytes .* expected 1 to 1000 bytes"):
            await fetch(stub, 1, 1000, tries=5, pause_s=100)
        with pytest.raises(PeerError, match="INVALID_ARGUMENT: the update of task 1 has"):
            await send(stub, 1, bytes(MOST + 1), tries=5, pause_s=100)

    with_server(spool, test)


def test_an_update_that_is_refused_while_it_is_sent_is_given_up(spool):
    async def test(server: Server, stub: Stub) -> None:
        with pytest.raises(PeerError, match="sending the update of task 100 failed"):
            await send(stub, 100, DATA, **SOON)
        assert spool.path(100) is None

    with_server(spool, test)


def test_a_silent_server_counts_as_broken(spool):
    class Silent(Server):
        async def fetch(self, _: None, request: pb.FetchRequest, context: Any) -> AsyncIterator[Piece]:
            self.asked.append(request.offset)
            async for piece in pieces(request.task, DATA, request.offset):
                yield piece
                if len(self.asked) == 1:
                    await asyncio.sleep(20)

        async def send(self, _: None, requests: AsyncIterator[Piece], context: Any) -> pb.SendReply:
            if len(self.offered) == 1:
                await asyncio.sleep(20)
            return await super().send(None, requests, context)

    async def test() -> None:
        server = Silent(spool)
        async with (
            listening(server) as port,
            aio.insecure_channel(f"127.0.0.1:{port}", options=CHANNEL) as channel,
        ):
            data, moved = await fetch(Stub(channel), 1, MOST, quiet_s=0.5, **SOON)
            assert data == DATA
            assert server.asked == [0, PIECE_BYTES]
            assert moved.bytes == len(DATA)
            await send(Stub(channel), 1, DATA, quiet_s=0.5, **SOON)
            assert spool.path(1).read_bytes() == DATA
            assert server.offered == [0, 0]

    run(test())


def test_pauses_double_up_to_a_limit(monkeypatch, spool):
    pauses: list[float] = []

    async def test(server: Server, stub: Stub) -> None:
        async def sleep(seconds: float) -> None:
            pauses.append(seconds)

        server.breaks = [0] * 10
        with monkeypatch.context() as patch:
            patch.setattr(transfer.asyncio, "sleep", sleep)
            with pytest.raises(PeerError, match="10 times in a row"):
                await fetch(stub, 1, MOST, tries=10, pause_s=0.2)

    with_server(spool, test)
    assert pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0])


@pytest.mark.parametrize("way", ["down", "up"])
def test_a_cancelled_transfer_ends_at_once(spool, way):
    async def test(server: Server, stub: Stub) -> None:
        server.breaks = [2, 0, 0, 0, 0]
        moving = (
            fetch(stub, 1, MOST, pause_s=100) if way == "down" else send(stub, 1, DATA, pause_s=100)
        )
        task = asyncio.create_task(moving)
        while server.taken < 2 * PIECE_BYTES:
            await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()

    with_server(spool, test)
