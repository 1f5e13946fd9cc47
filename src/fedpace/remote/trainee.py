"""What trains on a client: its own model code and its own data, by the server's settings."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedpace.core.errors import PeerError
from fedpace.learn.many.executor import single_thread
from fedpace.learn.model.arrays import arrays_to_weights, layout_digest, update_to_arrays
from fedpace.learn.model.layers import Layout
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.live import LiveTrainer
from fedpace.learn.train.orders import Open, Orders
from fedpace.net.jobs import Arrays, Result

Clock = Callable[[], float]


class TorchTrainee:
    """Trains a Task, all of whose training samples are this client's.

    read: settings of local training from what the server sends; slower: as a machine that takes so
    many times longer, for trying things out; threads: of torch, None: as torch decides.
    """

    def __init__(
        self,
        task: Task,
        read: Callable[[Any], TrainSettings],
        device: str = "cpu",
        slower: float = 1.0,
        threads: int | None = 1,
        clock: Clock = time.monotonic,
    ) -> None:
        self._task = task if slower == 1 else replace(task, loss=_Slowed(task.loss, slower))
        self._read = read
        self._device = device
        self._threads = threads
        self._clock = clock
        model = task.model()
        self._digest = layout_digest(Layout.trace(model, task.train[0][:2]), model)

    @property
    def samples(self) -> int:
        return len(self._task.train[0])

    @property
    def model(self) -> str:
        return self._digest

    def prepare(self, settings: str, seed: int, client: int) -> None:
        if self._threads == 1:
            single_thread()
        try:
            table = json.loads(settings)
        except ValueError as error:
            raise PeerError(f"the server's settings are no JSON: {error}") from error
        train = self._read(table)
        self._live = LiveTrainer(self._task, train, seed, client, self._device)
        self._live.warm_up(min(train.batch_size, self.samples))

    def batches(self, batch_size: int) -> int:
        return self._live.batches(batch_size)

    def train(
        self,
        opened: Open,
        weights: Arrays,
        orders: Orders,
        on_profile: Callable[[float], None],
        on_step: Callable[[int], None],
    ) -> Result | None:
        live = self._live
        start = arrays_to_weights(weights, live.layout)
        outcome = live.train(opened, start, orders, self._clock, on_profile, on_step)
        if outcome is None:
            return None
        update = outcome.update
        return Result(outcome, None if update is None else update_to_arrays(update))


class _Slowed:
    """A loss that waits as if its machine were slower: so long that a batch takes `factor` times.

    What a batch takes is what its thread has computed since the loss before: breaks do not count.
    """

    def __init__(self, loss: Callable[[Any, Tensor], Tensor], factor: float) -> None:
        self._loss, self._factor = loss, factor
        self._thread = 0
        self._computed_s = 0.0

    def __call__(self, outputs: Any, targets: Tensor) -> Tensor:
        if threading.get_ident() == self._thread:
            time.sleep((self._factor - 1) * max(time.thread_time() - self._computed_s, 0.0))
        self._thread, self._computed_s = threading.get_ident(), time.thread_time()
        return self._loss(outputs, targets)
