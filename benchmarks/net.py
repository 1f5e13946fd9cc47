"""What the network costs, on loopback with mTLS: a task that does nothing, and 45 MB down and up.

The round trip is that of a whole task with a real server in another process: its order, the model, an
update that is checked, on disk and in the next model, and the next order. Transfers are measured in
turns with a bare gRPC stream of protobuf messages through the same TLS; ours are checked piece by piece
and as a whole, and what goes up is on disk when the call ends.
"""

import asyncio
import multiprocessing
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np
import torch
from google.protobuf.wrappers_pb2 import BytesValue
from grpc import aio

from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, TaskResult
from fedpace.core.journal import JOURNAL, read
from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.model.layers import Layout
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.orders import LiveResult, TaskOpening, TaskOrders
from fedpace.net import federation_pb2 as pb
from fedpace.net import transfer
from fedpace.net.client import Client
from fedpace.net.keys.authority import Authority
from fedpace.net.keys.gate import ClientKeys, Gate
from fedpace.net.pieces import Piece
from fedpace.net.service import OPTIONS, SERVER_OPTIONS, Stub, handlers
from fedpace.net.transfer import PIECE_BYTES
from fedpace.remote.packing import digest
from fedpace.remote.spool import Spool
from fedpace.remote.trainee import TrainedTask
from fedpace.runs import federation

TASKS, TURNS, MEGABYTES = 200, 9, 45
SIZE = MEGABYTES * 1_000_000


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        keys = Authority.create(Path(folder) / "keys", ["127.0.0.1"]).client("client")
        return {
            "empty task, round trip in ms": round_trips(Path(folder), keys),
            "45 MB down and up, over a bare stream": transfers(Path(folder), keys),
        }


# A task that does nothing


def model() -> torch.nn.Module:
    return torch.nn.Linear(4, 2)


def task() -> Task:
    inputs = torch.randn(20, 4)
    return Task(model, (inputs, (inputs[:, 0] > 0).long()), (inputs[:2], torch.tensor([0, 1])))


class Idle:
    """Says that it has trained, and has not."""

    samples = 20

    def __init__(self) -> None:
        own = task()
        self.model = layout_digest(Layout.trace(own.model(), own.train[0][:2]), own.model())

    def prepare(self, settings: str, seed: int, client: int) -> None:
        pass

    def batches(self, batch_size: int) -> int:
        return 1

    def train(
        self, opened: TaskOpening, weights: Any, orders: TaskOrders, *_: Any
    ) -> TrainedTask | None:
        if orders.wait() is None:
            return None
        update = {
            "params": np.zeros_like(weights["params"]),
            "buffers": weights["buffers"],
            "counters": weights["counters"],
            "depth": np.array([1], "<i8"),
            "effort": np.array([1.0], "<f8"),
        }
        result = TaskResult(depth=1, steps=1, full_steps=0, samples=20, trained=20)
        return TrainedTask(LiveResult(result, 1e-3, None), update)


def serve(told: Connection, keys: Path, out: Path) -> None:
    config = {
        "clients": 1,
        "policy": "fedasync",
        "stop": {"rounds": TASKS},
        "evaluate": {"every_rounds": 10**6},
    }
    gate = Gate.open(keys, "certificate")
    federation.serve(config, "127.0.0.1:0", gate=gate, out=out, task=task(), on_ready=told.send)


def round_trips(folder: Path, keys: Path) -> float:
    with _Beside(serve, folder / "keys", folder / "run") as port:
        client = Client(f"127.0.0.1:{port}", "client", Idle(), ClientKeys.open(keys))
        asyncio.run(client.take_part())
    times = [one.at for one in read(folder / "run" / JOURNAL)[1] if isinstance(one, Arrived)]
    trips = sorted(1e3 * (after - before) for before, after in pairwise(times))
    print(
        f"round trip of an empty task: {median(trips):.1f} ms median of {len(trips)} "
        f"(90% within {trips[len(trips) * 9 // 10]:.1f} ms); asked for: under 20 ms"
    )
    return median(trips)


# 45 MB


def transfers(folder: Path, keys: Path) -> float:
    with _Beside(listen, folder / "keys", folder / "spool") as port:
        return asyncio.run(_in_turns(port, ClientKeys.open(keys)))


def listen(told: Connection, keys: Path, spool: Path) -> None:
    asyncio.run(_listen(told, keys, spool))


async def _listen(told: Connection, keys: Path, spool: Path) -> None:
    server = aio.server(options=SERVER_OPTIONS)
    data = _numbers()
    ours, bare = _Ours(Spool(spool, SIZE), data), _Bare(data)
    ways = {
        "Down": grpc.unary_stream_rpc_method_handler(
            bare.down, response_serializer=BytesValue.SerializeToString
        ),
        "Up": grpc.stream_unary_rpc_method_handler(bare.up, request_deserializer=BytesValue.FromString),
    }
    server.add_generic_rpc_handlers(
        (handlers(ours), grpc.method_handlers_generic_handler("bare", ways))
    )
    credentials = Gate.open(keys, "certificate").credentials()
    assert credentials is not None
    told.send(server.add_secure_port("127.0.0.1:0", credentials))
    await server.start()
    await server.wait_for_termination()


class _Ours:
    """Fetch, Offer and Send as a server answers them. Status: what has come is forgotten."""

    def __init__(self, spool: Spool, data: bytes) -> None:
        self._spool, self._data, self._sha256 = spool, data, digest(data)

    async def admit(self, context: Any) -> None:
        pass

    async def control(self, _: None, requests: AsyncIterator[pb.FromClient], context: Any) -> None:
        pass

    async def fetch(self, _: None, request: pb.FetchRequest, context: Any) -> AsyncIterator[Piece]:
        async for piece in transfer.pieces(request.task, self._data, request.offset, self._sha256):
            yield piece

    async def offer(self, _: None, request: pb.OfferRequest, context: Any) -> pb.OfferReply:
        there = await asyncio.to_thread(self._spool.offer, request.task, request.size, request.sha256)
        return pb.OfferReply(offset=there)

    async def send(self, _: None, requests: AsyncIterator[Piece], context: Any) -> pb.SendReply:
        try:
            return await transfer.receive(requests, self._spool, lambda number: True)
        except PeerError as error:
            await context.abort(transfer.status_code(error), str(error))
            raise

    async def status(self, _: None, request: pb.StatusRequest, context: Any) -> pb.StatusReply:
        self._spool.keep_only(())
        return pb.StatusReply()


def _numbers() -> bytes:
    """As many bytes as a model has, and as little to be guessed."""
    return np.random.default_rng(0).bytes(SIZE)


class _Bare:
    """Messages of as many bytes as protobuf sends them, and nothing else."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def down(self, request: bytes, context: Any) -> AsyncIterator[BytesValue]:
        for piece in _pieces(self._data):
            yield piece

    async def up(self, requests: AsyncIterator[BytesValue], context: Any) -> bytes:
        count = 0
        async for piece in requests:
            count += len(piece.value)
        return str(count).encode()


def _pieces(data: bytes) -> Iterator[BytesValue]:
    for start in range(0, len(data), PIECE_BYTES):
        yield BytesValue(value=data[start : start + PIECE_BYTES])


async def _in_turns(port: int, keys: ClientKeys) -> float:
    data = _numbers()

    async with aio.secure_channel(f"127.0.0.1:{port}", keys.credentials(), options=OPTIONS) as channel:
        stub = Stub(channel)
        down = channel.unary_stream("/bare/Down", None, BytesValue.FromString)
        up = channel.stream_unary("/bare/Up", BytesValue.SerializeToString, None)

        async def bare_down() -> None:
            count = 0
            async for one in down(b""):
                count += len(one.value)
            assert count == SIZE

        async def bare_up() -> None:
            call = up(None)
            for piece in _pieces(data):
                await call.write(piece)
            await call.done_writing()
            assert int(await call) == SIZE

        async def our_down() -> None:
            assert len((await transfer.fetch(stub, 1, SIZE))[0]) == SIZE

        async def our_up() -> None:
            await transfer.send(stub, 1, data)

        times: dict[str, list[float]] = {}
        for turn in range(TURNS + 1):
            await stub.status(pb.StatusRequest())
            for name, run in (
                ("our down", our_down),
                ("bare down", bare_down),
                ("our up", our_up),
                ("bare up", bare_up),
            ):
                began = time.perf_counter()
                await run()
                if turn:  # the first warms up
                    times.setdefault(name, []).append(time.perf_counter() - began)
    for whose in ("our", "bare"):
        ways = zip(times[f"{whose} down"], times[f"{whose} up"], strict=True)
        times[f"{whose} down and up"] = [sum(both) for both in ways]
    ratios = {
        what: _tell(what, times[f"our {what}"], times[f"bare {what}"])
        for what in ("down", "up", "down and up")
    }
    print("asked for: at most 3 times")
    return ratios["down and up"]


def _tell(what: str, ours: list[float], bare: list[float]) -> float:
    ratios = [our / their for our, their in zip(ours, bare, strict=True)]
    print(
        f"{MEGABYTES} MB {what:>11}: {median(ours):.3f} s, bare gRPC {median(bare):.3f} s: "
        f"{median(ratios):.2f} times as long ({min(ratios):.2f} to {max(ratios):.2f})"
    )
    return median(ratios)


class _Beside:
    """A function in a process of its own, which tells its port first."""

    def __init__(self, run: Callable[..., None], *args: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._told, telling = context.Pipe(duplex=False)
        self._process = context.Process(target=run, args=(telling, *args), daemon=True)

    def __enter__(self) -> int:
        self._process.start()
        if not self._told.poll(60):
            raise SystemExit("the server does not start")
        return int(self._told.recv())

    def __exit__(self, *_: object) -> None:
        self._process.join(5)
        self._process.terminate()
        self._process.join()


if __name__ == "__main__":
    main()
