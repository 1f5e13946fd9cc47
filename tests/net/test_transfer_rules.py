"""Pieces on the wire, and what a server says to clients that keep no rule."""

import asyncio
import hashlib
from collections.abc import AsyncIterator

import grpc
import pytest

from fedpace.core.errors import PeerError
from fedpace.net import transfer
from fedpace.net.pieces import Piece, Unreadable
from fedpace.net.transfer import PIECE_BYTES, pieces, receive
from fedpace.remote.spool import DigestError, FullError, PieceError, Spool
from tests.net.transfers import DATA, MOST, request, run


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path, MOST)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, PIECE_BYTES])
def test_pieces_survive_the_wire(size):
    data = memoryview(DATA)[:size]
    for piece in (
        Piece(2**64 - 1, 2**40, data, 2**32 - 1, 2**64 - 1, bytes(range(32))),
        Piece.of(1, 0, data),
    ):
        frame = piece.encode()
        assert len(frame) == 60 + size
        assert Piece.decode(frame) == piece
        assert Piece.decode(frame).encode() == frame


def test_no_beginning_of_a_head_is_a_piece():
    frame = Piece.of(1, 0, b"").encode()
    for length in range(len(frame)):
        with pytest.raises(Unreadable, match="are no Piece"):
            Piece.decode(frame[:length])


class Garbage:
    """Requests of a client that keeps no rule."""

    @staticmethod
    async def of(*requests: Piece) -> AsyncIterator[Piece]:
        for one in requests:
            yield one


PIECE = DATA[:PIECE_BYTES]


@pytest.mark.parametrize(
    ("requests", "error", "why"),
    [
        ([], PeerError, "had none in it"),
        ([request(100, 0, PIECE)], PeerError, "no update of task 100 is expected"),
        ([request(2, 0, PIECE)], PeerError, "no offer for the update of task 2"),
        ([request(2, 0, b"")], PeerError, "no offer for the update of task 2"),
        ([request(1, 0, PIECE), request(2, 0, PIECE)], PeerError, "a piece for task 2"),
        ([request(1, 0, b"")], PeerError, "is empty"),
        ([request(1, 0, b"x" * 100)], PeerError, "expected at least 4096"),
        ([request(1, 5, PIECE)], PieceError, "begins at 5; expected 0"),
        ([request(1, 0, PIECE, crc=1)], PieceError, "damaged"),
        ([request(1, 0, PIECE), request(1, 0, PIECE)], PieceError, "begins at 0"),
        (
            [request(1, 0, bytes(PIECE_BYTES)), request(1, PIECE_BYTES, b"!")],
            DigestError,
            "not what was",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_client_that_keeps_no_rule_is_refused(spool, requests, error, why):
    async def test() -> None:
        spool.offer(1, PIECE_BYTES + 1, hashlib.sha256(PIECE + b"?").digest())
        with pytest.raises(error, match=why) as raised:
            await receive(Garbage.of(*requests), spool, lambda task: task < 100)
        assert type(raised.value) is error

    run(test())


def test_a_client_that_ends_early_or_falls_silent_is_told_what_is_there(spool):
    async def silent() -> AsyncIterator[Piece]:
        yield request(1, PIECE_BYTES, PIECE)
        await asyncio.sleep(20)

    async def test() -> None:
        spool.offer(1, 3 * PIECE_BYTES, bytes(32))
        reply = await receive(Garbage.of(request(1, 0, PIECE)), spool, lambda task: True)
        assert (reply.offset, reply.complete) == (PIECE_BYTES, False)
        reply = await receive(silent(), spool, lambda task: True, quiet_s=0.05)
        assert (reply.offset, reply.complete) == (2 * PIECE_BYTES, False)

    run(test())


def test_pieces_begin_where_they_are_asked_to():
    async def test() -> None:
        for offset in (0, 5, len(DATA) - 1, len(DATA)):
            found = [piece async for piece in pieces(1, DATA, offset)]
            assert b"".join(piece.data for piece in found) == DATA[offset:]
            assert (found[0].size, found[0].sha256) == (len(DATA), hashlib.sha256(DATA).digest())
            assert all(piece.size == 0 and not piece.sha256 for piece in found[1:])
        with pytest.raises(PeerError, match=f"from {len(DATA) + 1} on"):
            await anext(pieces(1, DATA, len(DATA) + 1))

    run(test())


def test_every_error_has_a_status_that_tells_the_client_what_to_do():
    assert transfer.status_code(PieceError()) is grpc.StatusCode.ABORTED
    assert transfer.status_code(DigestError()) is grpc.StatusCode.DATA_LOSS
    assert transfer.status_code(FullError()) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert transfer.status_code(OSError()) is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert transfer.status_code(PeerError()) is grpc.StatusCode.INVALID_ARGUMENT
    assert transfer.status_code(RuntimeError()) is grpc.StatusCode.INTERNAL
