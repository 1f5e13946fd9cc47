"""A trainee of PyTorch: the client's own model code and its own data, by the server's settings."""

import json
import time
from collections.abc import Callable
from typing import Any

from fedpace.core.errors import PeerError
from fedpace.learn.device import settle_precision
from fedpace.learn.many.executor import single_thread
from fedpace.learn.model.arrays import arrays_to_weights, update_to_arrays
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.digest import model_digest
from fedpace.learn.tasks.first_pass import make_model
from fedpace.learn.tasks.slowed import slow_down
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.live import LiveTrainer
from fedpace.learn.train.orders import TaskOpening, TaskOrders
from fedpace.remote.trainee import Arrays, TrainedTask


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
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._task = slow_down(task, slower)
        self._read = read
        self._device = device
        self._threads = threads
        self._clock = clock
        state = make_model(task).state_dict().values()
        self.most_model_bytes = 2 * sum(one.numel() * one.element_size() for one in state) + (1 << 20)
        """Of a download: twice what our own model has."""
        self._digest = model_digest(task)

    @property
    def samples(self) -> int:
        return len(self._task.train)

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
        train = settle_precision(self._read(table), self._device)
        self._live = LiveTrainer(self._task, train, seed, client, self._device)
        self._live.warm_up(min(train.batch_size, self.samples))

    def batches(self, batch_size: int) -> int:
        return self._live.batches(batch_size)

    def train(
        self,
        opened: TaskOpening,
        weights: Arrays,
        orders: TaskOrders,
        on_profile: Callable[[float], None],
        on_step: Callable[[int], None],
    ) -> TrainedTask | None:
        live = self._live
        start = arrays_to_weights(weights, live.layout)
        outcome = live.train(opened, start, orders, self._clock, on_profile, on_step)
        if outcome is None:
            return None
        update = outcome.update
        return TrainedTask(outcome, None if update is None else update_to_arrays(update))
