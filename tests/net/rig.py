"""A federation within the tests' own process: a real server in a thread, clients that need no torch."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import nn

from fedpace.core.commands import Work
from fedpace.core.events import TaskResult
from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.model.layers import Layout
from fedpace.learn.server.model_server import ModelServer
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.orders import LiveResult, TaskOpening, TaskOrders
from fedpace.net.keys.gate import Gate
from fedpace.net.server import Server
from fedpace.remote.trainee import Arrays, TrainedTask
from fedpace.remote.world import RemoteWorld
from fedpace.runs import federation, learning
from fedpace.runs import serving as serving_

SAMPLES, BATCH = 200, 20
LONG_S = 60.0
"""How long something is waited for that takes a moment, on a machine that has other things to do."""


def model() -> nn.Module:
    """Four layers, 195 parameters."""
    sizes = (4, 8, 8, 6, 3)
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    return nn.Sequential(*(one for layer in layers for one in (layer, nn.ReLU())))


@cache
def task() -> Task:
    inputs = torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(0))
    targets = inputs[:, :3].argmax(-1)
    return Task(model, (inputs, targets), (inputs[:20], targets[:20]))


@cache
def layout() -> Layout:
    return Layout.trace(model(), task().train[0][:2])


@cache
def digest() -> str:
    return layout_digest(layout(), model())


def update(depth: int = 4, value: float = 0.0, **other: np.ndarray) -> Arrays:
    """An update of the last layers, all of whose parameters move by `value`."""
    start, end = layout().start(depth).params, layout().start(0).params
    return {
        "params": np.full(end - start, value, "<f4"),
        "buffers": np.empty(0, "<f4"),
        "counters": np.empty(0, "<i8"),
        "depth": np.array([depth], "<i8"),
        "effort": np.array([1.0], "<f8"),
        **other,
    }


@dataclass
class Sleeper:
    """Trains by sleeping, `batch_s` a batch of the full model, which is also what it tells.

    shares: cost of a step at each depth over that of a full one; value: how far its updates move.
    """

    batch_s: float = 1e-6
    samples: int = SAMPLES
    value: float = 0.0
    shares: tuple[float, ...] = (1.0, 1.0, 1.0, 1.0)

    @property
    def model(self) -> str:
        return digest()

    def prepare(self, settings: str, seed: int, client: int) -> None:
        pass

    def batches(self, batch_size: int) -> int:
        return -(-self.samples // batch_size)

    def train(
        self,
        opened: TaskOpening,
        weights: Arrays,
        orders: TaskOrders,
        on_profile: Callable[[float], None],
        on_step: Callable[[int], None],
    ) -> TrainedTask | None:
        steps, full = 0, len(self.shares)

        def step(depth: int) -> None:
            nonlocal steps
            time.sleep(self.batch_s * self.shares[depth - 1])
            steps += 1
            on_step(steps)

        if opened.probe:
            step(full)
            on_profile(self.batch_s)
            while opened.go_on and not orders.given:
                step(full)
        full_steps, work = steps, orders.wait()
        if work is None:
            return None
        total = work.steps or (work.epochs or 1) * self.batches(work.batch_size)
        depth = work.depth or full
        while steps < total and not orders.cancelled and not self._is_late(work, depth, steps):
            step(depth)
        if orders.cancelled:
            return None
        trained = sum(
            min(
                work.batch_size, self.samples - number % self.batches(work.batch_size) * work.batch_size
            )
            for number in range(steps)
        )
        result = TaskResult(
            depth, steps, full_steps, min(trained, self.samples), trained, cut=steps < total
        )
        return TrainedTask(LiveResult(result, self.batch_s, None), update(depth, self.value))

    def _is_late(self, work: Work, depth: int, steps: int) -> bool:
        ends_at = time.monotonic() + self.batch_s * self.shares[depth - 1]
        return work.stop_at is not None and steps > 0 and ends_at > work.stop_at


@dataclass
class Site:
    """A server that runs. server, world, models: its parts, to look at; result: what `serve` gave."""

    out: Path
    port: int = 0
    server: Any = None
    world: Any = None
    models: Any = None
    result: Any = None
    error: BaseException | None = None
    ready: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def weights(self) -> bytes:
        """The global model."""
        found = self.models.weights()
        return b"".join(one.numpy().tobytes() for one in (found.params, found.buffers, found.counters))

    def ended(self, within_s: float = LONG_S) -> Any:
        """The run's result, once it is over."""
        assert self.over.wait(within_s), "the server goes on"
        if self.error is not None:
            raise self.error
        return self.result


def settings(policy: str, clients: int, rounds: int, serve: dict[str, Any], **own: Any) -> Any:
    """A config; own: settings of the policy."""
    return {
        "clients": clients,
        "seed": 3,
        "policy": policy,
        "policies": {policy: own},
        "train": {"batch_size": BATCH},
        "serve": {"linger_s": 0.0, **serve},
        "stop": {"rounds": rounds},
        "evaluate": {"every_rounds": 1000},
    }


@contextmanager
def serving(config: Any, out: Path, gate: Gate | None = None, **options: Any) -> Iterator[Site]:
    """A server on loopback for as long as the block lasts."""
    site = Site(out)

    def kept(kind: type, name: str) -> Callable[..., Any]:
        def make(*args: Any, **more: Any) -> Any:
            made = kind(*args, **more)
            setattr(site, name, made)
            return made

        return make

    def ready(port: int) -> None:
        site.port = port
        site.ready.set()

    def serve() -> None:
        try:
            site.result = federation.serve(
                config,
                "127.0.0.1:0",
                gate=gate or Gate.insecure(),
                out=out,
                task=task(),
                on_ready=ready,
                stop=site.stop,
                **options,
            )
        except BaseException as error:
            site.error = error
        finally:
            site.over.set()
            site.ready.set()

    with (
        mock.patch.object(federation, "Server", kept(Server, "server")),
        mock.patch.object(serving_, "RemoteWorld", kept(RemoteWorld, "world")),
        mock.patch.object(learning, "ModelServer", kept(ModelServer, "models")),
    ):
        thread = threading.Thread(target=serve)
        thread.start()
        assert site.ready.wait(LONG_S)
    try:
        if site.error is None:
            yield site
    finally:
        site.stop.set()
        thread.join(LONG_S)
        assert not thread.is_alive()
        if site.error is not None:
            raise site.error
