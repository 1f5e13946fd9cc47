"""Clients for tests: one whose training is a sleep and whose updates are known, and one that lies."""

import asyncio
import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from grpc import aio

from fedpace.core.events import TaskResult
from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.model.layers import Layout
from fedpace.learn.train.orders import LiveResult, TaskOpening, TaskOrders
from fedpace.net import federation_pb2 as pb
from fedpace.net import transfer
from fedpace.net.service import OPTIONS, Stub
from fedpace.remote import packing as arrays
from fedpace.remote.trainee import TrainedTask
from tests.net.toy_task import SAMPLES, task

BATCH = 10
BATCHES = SAMPLES // BATCH


def layout_of(wide: int) -> tuple[Layout, str]:
    made = task(wide=wide)
    layout = Layout.trace(made.model(), made.train[0][:2])
    return layout, layout_digest(layout, made.model())


def change(params: np.ndarray, client: int, number: int, steps: int) -> np.ndarray:
    """What a task does to the parameters: the same numbers whoever asks, wherever and when."""
    drawn = np.random.default_rng([client, number]).standard_normal(len(params), dtype=np.float32)
    return (np.float32(0.01) * drawn - np.float32(0.01 * min(steps, 10)) * params).astype(np.float32)


def update(params: np.ndarray, start: int, depth: int, client: int, number: int, steps: int) -> Any:
    """As it travels. start: where the parameters begin that it carries."""
    return {
        "params": change(params, client, number, steps)[start:],
        "buffers": np.empty(0, "<f4"),
        "counters": np.empty(0, "<i8"),
        "depth": np.array([depth], "<i8"),
        "effort": np.array([float(steps)], "<f8"),
    }


class Toy:
    """Does what it is told, a sleep a batch, and notes what it does in a file.

    hold: while this file exists, no task ends with a number from what stands in it on; broken: what it
    fails with, "prepare" or "train".
    """

    def __init__(self, notes: Path, wide: int, step_s: float, hold: Path, broken: str = "") -> None:
        self.layout, self.model = layout_of(wide)
        self.samples = SAMPLES
        self._notes, self._step_s, self._hold, self._broken = notes, step_s, hold, broken
        self._client = -1

    def note(self, what: str) -> None:
        with self._notes.open("a") as file:
            file.write(what + "\n")

    def _held(self, number: int) -> bool:
        try:
            return number >= int(self._hold.read_text())
        except FileNotFoundError:
            return False

    def prepare(self, settings: str, seed: int, client: int) -> None:
        self._client = client
        self.note(f"prepares as {client}")
        if self._broken == "prepare":
            raise OSError("its data are not there")

    def batches(self, batch_size: int) -> int:
        return -(-SAMPLES // batch_size)

    def train(
        self,
        opened: TaskOpening,
        weights: dict[str, np.ndarray],
        orders: TaskOrders,
        on_profile: Callable[[float], None],
        on_step: Callable[[int], None],
    ) -> TrainedTask | None:
        self.note(f"begins {opened.task}")
        if self._broken == "train":
            raise KeyError("a mistake of its own")
        steps = 0

        def step() -> None:
            nonlocal steps
            time.sleep(self._step_s)
            steps += 1
            on_step(steps)

        if opened.probe:
            step()
            on_profile(self._step_s)
            while opened.go_on and not orders.given:
                step()
        full_steps, work = steps, orders.wait()
        total = 0 if work is None else work.steps or (work.epochs or 1) * self.batches(work.batch_size)
        stop_at = None if work is None else work.stop_at
        while steps < total and not orders.cancelled:
            if steps and stop_at is not None and time.monotonic() + self._step_s > stop_at:
                break
            step()
        while self._held(opened.task) and not orders.cancelled:
            time.sleep(0.01)
        if work is None or orders.cancelled:
            self.note(f"gives up {opened.task}")
            return None
        depth = work.depth or self.layout.depth
        made = update(
            weights["params"], self.layout.start(depth).params, depth, self._client, opened.task, steps
        )
        trained = steps * work.batch_size
        result = TaskResult(depth, steps, full_steps, min(trained, SAMPLES), trained, cut=steps < total)
        self.note(f"ends {opened.task}")
        return TrainedTask(LiveResult(result, self._step_s, None), made)


class Rogue:
    """A client in the hands of a test: says what it is told to, at the pace of the test."""

    def __init__(self, address: str, name: str, wide: int = 8) -> None:
        self.name, self.instance, self.run = name, uuid.uuid4().hex, ""
        self.layout, self.model = layout_of(wide)
        self._address = address
        self._writing = asyncio.Lock()

    async def __aenter__(self) -> "Rogue":
        self._channel = aio.insecure_channel(self._address, options=list(OPTIONS))
        self.stub = Stub(self._channel)
        self.metadata = (("fedpace-instance", self.instance),)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def hello(self) -> pb.FromServer | Any:
        """Open a stream; the server's first word."""
        self.call = self.stub.control(None, metadata=self.metadata)
        hello = pb.Hello(name=self.name, run=self.run, model=self.model, instance=self.instance)
        await self.call.write(pb.FromClient(hello=hello))
        first = await self.call.read()
        if isinstance(first, pb.FromServer) and first.HasField("welcome"):
            self.run, self.client = first.welcome.run, first.welcome.client
        return first

    async def join(self, samples: int = SAMPLES) -> pb.FromServer:
        first = await self.hello()
        assert first.HasField("welcome"), first
        await self.say(ready=pb.Ready(samples=samples))
        return await self.hear("start")

    async def say(self, **body: Any) -> None:
        async with self._writing:  # grpc takes one at a time
            try:
                await self.call.write(pb.FromClient(**body))
            except (aio.AioRpcError, aio.UsageError, asyncio.InvalidStateError) as error:
                raise EOFError("the stream is over") from error

    async def beat(self, every_s: float = 0.1) -> None:
        """Beat until it is cancelled or the stream is over."""
        while True:
            await self.say(beat=pb.Beat(number=1))
            await asyncio.sleep(every_s)

    async def hear(self, kind: str, within_s: float = 30.0) -> pb.FromServer:
        """The next message of a kind; beats and others are passed over."""
        async with asyncio.timeout(within_s):
            while True:
                message = await self.call.read()
                if message is aio.EOF:
                    raise EOFError(f"the stream ended before a {kind} came")
                if message.WhichOneof("body") == kind:
                    return message

    async def model_of(self, number: int) -> np.ndarray:
        data, _ = await transfer.fetch(self.stub, number, 1 << 30, self.metadata)
        return arrays.unpack(data, 1 << 30)["params"]

    async def send(self, number: int, made: Any) -> None:
        await transfer.send(self.stub, number, arrays.pack(made), self.metadata, tries=2)

    def good(self, params: np.ndarray, number: int, steps: int = BATCHES) -> Any:
        return update(params, 0, self.layout.depth, self.client, number, steps)

    def done(self, train: pb.Train, **other: Any) -> pb.Done:
        """A report that is right but for what is given."""
        steps = BATCHES
        values: dict[str, Any] = {
            "task": train.task,
            "version": train.version,
            "rates": pb.Rates(batch_s=0.01, batches=BATCHES, down_s=0.01, up_s=0.01, latency_s=0.001),
        }
        result: dict[str, Any] = {
            "depth": self.layout.depth,
            "steps": steps,
            "full_steps": 0,
            "samples": SAMPLES,
            "trained": steps * BATCH,
        }
        values |= {name: other[name] for name in other.keys() & {"task", "version", "rates"}}
        result |= {name: other[name] for name in other.keys() - values.keys()}
        return pb.Done(**values, result=json.dumps(result))

    async def refusal(self, call: Any) -> grpc.StatusCode:
        """The status with which a call ends that must fail."""
        try:
            await call
        except aio.AioRpcError as error:
            return error.code()
        raise AssertionError("the call went through")
