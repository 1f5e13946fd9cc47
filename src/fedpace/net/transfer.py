"""Transfers of models and updates in pieces, each checked, and resumed where they broke off.

A transfer that breaks is tried again, with pauses that double; every piece that brings it further than
it ever was gives it all its tries back. What cannot get better by trying is a PeerError at once.
"""

import asyncio
import hashlib
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import grpc
import numpy as np
from grpc import aio

from fedpace.core.errors import PeerError
from fedpace.net import federation_pb2 as pb
from fedpace.net.pieces import Piece
from fedpace.net.service import Stub
from fedpace.remote.packing import digest
from fedpace.remote.spool import DigestError, FullError, PieceError, Spool

PIECE_BYTES = 1 << 19
"""With 1 MiB glibc gives the memory of every piece back and takes it anew: half as fast at worst."""
LEAST_PIECE_BYTES = 4 << 10
"""Of all pieces but the last: every piece is work for the server, however small."""
QUIET_S = 30.0
"""A transfer of which nothing is heard for this long is broken."""
MOST_PAUSE_S = 10.0
_END_S = 1.0
"""How long the end of a call is waited for when everything has come."""

Metadata = Sequence[tuple[str, str | bytes]]

_WORTH_TRYING = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    # A proof may fail to hold for a moment; who is revoked is told so by the control stream.
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNKNOWN,  # of a stream that broke
    # What grpc.aio says at times when a server ends a call while a piece is on its way: the server's
    # own status is lost, and comes with the next try if it stands.
    grpc.StatusCode.INTERNAL,
}


class TransferFailed(PeerError):
    """A transfer that broke too often in a row; later it may go through."""


@dataclass(frozen=True, slots=True)
class TransferTime:
    """Bytes of a transfer that arrived, and seconds while they did, without pauses."""

    bytes: int
    seconds: float


def status_code(error: Exception) -> grpc.StatusCode:
    """The status that a server ends a call with: it decides if, and how, the client tries again."""
    if isinstance(error, DigestError):
        return grpc.StatusCode.DATA_LOSS
    if isinstance(error, PieceError):
        return grpc.StatusCode.ABORTED
    if isinstance(error, FullError | OSError):
        return grpc.StatusCode.RESOURCE_EXHAUSTED
    if isinstance(error, PeerError):
        return grpc.StatusCode.INVALID_ARGUMENT
    return grpc.StatusCode.INTERNAL


async def pieces(
    task: int, data: bytes | memoryview, offset: int, sha256: bytes | None = None
) -> AsyncIterator[Piece]:
    """The answer to Fetch: `data` from an offset on. sha256: of all of it, if known already."""
    view = memoryview(data)
    if offset > len(view):
        raise PeerError(f"a model of {len(view)} bytes is asked for from {offset} on")
    if sha256 is None:
        sha256 = await asyncio.to_thread(digest, view)
    yield Piece.of(task, offset, view[offset : offset + PIECE_BYTES], len(view), sha256)
    for start in range(offset + PIECE_BYTES, len(view), PIECE_BYTES):
        yield Piece.of(task, start, view[start : start + PIECE_BYTES])


async def receive(
    requests: AsyncIterator[Piece],
    spool: Spool,
    task_allowed: Callable[[int], bool],
    quiet_s: float = QUIET_S,
    offer: Callable[[int, int, bytes], int | None] | None = None,
) -> pb.SendReply:
    """Handle Send: write pieces to the spool as they come; the last one finishes the upload.

    offer: takes the offer that a first piece may bring along, see `ReportDesk.offer`.
    While a piece is written the next one is waited for. A client that falls silent or ends early is
    told what is there. PeerError for what a client should not do (PieceError, DigestError: it may try
    again), OSError when the disk is full: see `status_code`.
    """
    task: int | None = None
    coming = asyncio.ensure_future(_next(requests, quiet_s))
    try:
        while (piece := await coming) is not None:
            if not task_allowed(piece.task):
                raise PeerError(f"no update of task {piece.task} is expected from this client")
            if task is not None and task != piece.task:
                raise PeerError(f"a stream for task {task} has a piece for task {piece.task}")
            if task is None and piece.size and not piece.offset and offer is not None:
                await asyncio.to_thread(offer, piece.task, piece.size, piece.sha256)
            task = piece.task
            coming = asyncio.ensure_future(_next(requests, quiet_s))
            if await asyncio.to_thread(_take, piece, spool):
                return pb.SendReply(offset=piece.offset + len(piece.data), complete=True)
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
    if task is None:
        raise PeerError("a stream of pieces had none in it")
    return pb.SendReply(offset=spool.offered(task).there)


async def _next(requests: AsyncIterator[Piece], quiet_s: float) -> Piece | None:
    """The next piece; None: there is none, or none comes."""
    try:
        async with asyncio.timeout(quiet_s):
            return await anext(requests)
    except (StopAsyncIteration, TimeoutError):
        return None


def _take(piece: Piece, spool: Spool) -> bool:
    """Write a piece; true if it was the last one, and all of the upload is safe."""
    task, data = piece.task, piece.data
    if data:
        missing = spool.append(task, piece.offset, data, piece.crc)
    else:  # fine for an upload that only has to be finished
        missing = spool.offered(task).missing
    if missing and not data:
        raise PeerError(f"a piece of task {task}'s update is empty; {missing} bytes are missing")
    if missing and len(data) < LEAST_PIECE_BYTES:
        raise PeerError(
            f"a piece of task {task}'s update has {len(data)} bytes; "
            f"expected at least {LEAST_PIECE_BYTES} of all but the last"
        )
    if not missing:
        spool.finish(task)
    return not missing


async def fetch(
    stub: Stub,
    task: int,
    most_bytes: int,
    metadata: Metadata = (),
    tries: int = 5,
    pause_s: float = 0.2,
    on_bytes: Callable[[int], None] | None = None,
    quiet_s: float = QUIET_S,
) -> tuple[memoryview, TransferTime]:
    """Download the model that a task starts from. on_bytes: told the size of every piece."""
    what = f"fetching the model of task {task}"
    retry, watch, download = _Retry(what, tries, pause_s), _Watch(), _Download(what, most_bytes)
    while True:
        watch.start()
        call = stub.fetch(pb.FetchRequest(task=task, offset=download.there), metadata=metadata)
        try:
            with _attempt(what, quiet_s):
                first = True
                while download.missing:
                    async with asyncio.timeout(quiet_s):
                        piece = await call.read()
                    if not isinstance(piece, Piece):
                        raise _Broken(f"it ended after {download.there} bytes")
                    if first:
                        download.begin(piece)
                    first = False
                    came = download.take(piece)
                    watch.lap()
                    watch.came(came)
                    retry.reached(download.there)
                    if on_bytes is not None:
                        on_bytes(came)
                data = download.whole()
            with suppress(TimeoutError, aio.AioRpcError):
                async with asyncio.timeout(_END_S):
                    await call.read()
            return data, watch.total()
        except _Broken as broken:
            await retry.pause(broken)
        except _Anew as anew:
            retry.anew(anew)
            download.anew()
        finally:
            call.cancel()


async def send(
    stub: Stub,
    task: int,
    data: bytes | memoryview,
    metadata: Metadata = (),
    tries: int = 5,
    pause_s: float = 0.2,
    quiet_s: float = QUIET_S,
    sha256: bytes | None = None,
    ask: bool = True,
) -> TransferTime:
    """Upload a task's update; it is safe on the server once this returns. sha256: if known.

    ask: how much of it is there; False: nothing is, and the offer goes along with the first piece,
    which saves a round trip.
    """
    what = f"sending the update of task {task}"
    retry, watch, view = _Retry(what, tries, pause_s), _Watch(), memoryview(data)
    if sha256 is None:
        sha256 = await asyncio.to_thread(digest, view)
    offer = pb.OfferRequest(task=task, size=len(view), sha256=sha256)
    began, there = len(view) if ask else 0, 0
    while True:
        try:
            if ask:
                with _attempt(what, quiet_s):
                    there = (await stub.offer(offer, timeout=quiet_s, metadata=metadata)).offset
            if there > len(view):
                raise PeerError(f"{what} failed: the server has {there} of {len(view)} bytes")
            watch.came(there - began)  # of the try before this one
            retry.reached(there)
            began = there
            watch.start()
            with _attempt(what, quiet_s):
                call, told = stub.send(None, metadata=metadata), b"" if ask else sha256
                ask = True  # where it breaks off something may be there
                reply = await _write(call, task, view, there, watch, quiet_s, told)
            if not reply.complete:
                raise _Broken(f"the server has {reply.offset} of {len(view)} bytes")
            watch.came(len(view) - began)
            return watch.total()
        except _Broken as broken:
            await retry.pause(broken)
        except _Anew as anew:
            retry.anew(anew)


async def _write(
    call: aio.StreamUnaryCall[Piece, pb.SendReply],
    task: int,
    view: memoryview,
    offset: int,
    watch: "_Watch",
    quiet_s: float,
    sha256: bytes,
) -> pb.SendReply:
    """Write the pieces from an offset on, at least one; the server's reply.

    sha256: of all of it where the first piece is its offer, too; else empty.
    """
    try:
        try:
            for start in range(offset, max(len(view), offset + 1), PIECE_BYTES):
                data, size = view[start : start + PIECE_BYTES], len(view) if sha256 else 0
                piece = Piece.of(task, start, data, size, sha256)
                sha256 = b""
                async with asyncio.timeout(quiet_s):
                    await call.write(piece)
                watch.lap()
            async with asyncio.timeout(quiet_s):
                await call.done_writing()
        except (aio.AioRpcError, aio.InternalError, asyncio.InvalidStateError):
            pass  # the server ended the call early, and says why in its reply
        async with asyncio.timeout(quiet_s):
            reply = await call
        watch.lap()
        return reply
    finally:
        call.cancel()


class _Broken(Exception):
    """A failed try, after which another one may go through."""


class _Anew(Exception):
    """Wrong data came: another try must begin at 0."""


@contextmanager
def _attempt(what: str, quiet_s: float) -> Iterator[None]:
    """Sort what can go wrong with a call into _Broken, _Anew and PeerError."""
    try:
        yield
    except TimeoutError:
        raise _Broken(f"nothing was heard for {quiet_s:g} s") from None
    except aio.AioRpcError as error:
        reason = f"{error.code().name}: {error.details()}"
        if error.code() in _WORTH_TRYING:
            raise _Broken(reason) from None
        if error.code() is grpc.StatusCode.DATA_LOSS:
            raise _Anew(reason) from None
        raise PeerError(f"{what} failed: {reason}") from None


class _Retry:
    """Counts the tries of a transfer, and pauses between them."""

    def __init__(self, what: str, tries: int, pause_s: float) -> None:
        self.what, self.tries, self.pause_s = what, tries, pause_s
        self.failures = self.best = 0
        self.may_begin_anew = True

    def reached(self, offset: int) -> None:
        if offset > self.best:
            self.best, self.failures = offset, 0

    async def pause(self, broken: _Broken) -> None:
        self.failures += 1
        if self.failures >= self.tries:
            raise TransferFailed(f"{self.what} failed {self.failures} times in a row: {broken}")
        await asyncio.sleep(min(MOST_PAUSE_S, self.pause_s * 2 ** min(self.failures - 1, 20)))

    def anew(self, anew: _Anew) -> None:
        if not self.may_begin_anew:
            raise PeerError(f"{self.what} failed, and again from the beginning: {anew}")
        self.may_begin_anew = False


class _Watch:
    """Counts bytes, and seconds up to the last sign of life of each try."""

    def __init__(self) -> None:
        self._clock = asyncio.get_running_loop().time
        self._bytes, self._seconds, self._mark = 0, 0.0, 0.0

    def start(self) -> None:
        self._mark = self._clock()

    def lap(self) -> None:
        now = self._clock()
        self._seconds += now - self._mark
        self._mark = now

    def came(self, count: int) -> None:
        self._bytes += max(0, count)

    def total(self) -> TransferTime:
        return TransferTime(self._bytes, self._seconds)


class _Download:
    """A model as it comes. size and sha256: as the first piece told; there: bytes that have come."""

    def __init__(self, what: str, most_bytes: int) -> None:
        self.what, self.most_bytes = what, most_bytes
        self.anew()

    def anew(self) -> None:
        self.size, self.sha256, self.there = 0, b"", 0
        self._data, self._hash = np.empty(0, np.uint8), hashlib.sha256()

    @property
    def missing(self) -> int:
        """Bytes that have not come; 1 until the size is known."""
        return self.size - self.there if self.size else 1

    def begin(self, piece: Piece) -> None:
        """Learn from the first piece of a try what is to come; every try must tell the same."""
        if not 1 <= piece.size <= self.most_bytes or len(piece.sha256) != self._hash.digest_size:
            raise PeerError(
                f"{self.what} failed: it has {piece.size} bytes and a digest of {len(piece.sha256)}; "
                f"expected 1 to {self.most_bytes} bytes and a SHA-256"
            )
        if not self.size:
            self._data = np.empty(piece.size, np.uint8)  # of numpy, which takes large pages
            self.size, self.sha256 = piece.size, piece.sha256
        if (self.size, self.sha256) != (piece.size, piece.sha256):
            raise _Anew("it is another model than at the try before")

    def take(self, piece: Piece) -> int:
        """Put a piece in its place; return how many bytes it had."""
        data = piece.data
        if zlib.crc32(data) != piece.crc:
            raise _Broken(f"the piece at {self.there} was damaged on its way")
        if not 1 <= len(data) <= self.missing:
            raise PeerError(
                f"{self.what} failed: a piece has {len(data)} bytes, where {self.missing} are missing"
            )
        self._hash.update(data)
        self._data.data[self.there : self.there + len(data)] = data
        self.there += len(data)
        return len(data)

    def whole(self) -> memoryview:
        if self._hash.digest() != self.sha256:
            raise _Anew(
                f"the SHA-256 of what came is {self._hash.hexdigest()}, not {self.sha256.hex()}"
            )
        return self._data.data.toreadonly()
