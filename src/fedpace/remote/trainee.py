"""The interface of whatever trains on a client; it need not be PyTorch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from fedpace.learn.train.orders import LiveResult, TaskOpening, TaskOrders

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class TrainedTask:
    """A task's outcome, and its update as arrays; None: there is nothing to send."""

    outcome: LiveResult
    update: Arrays | None


class Trainee(Protocol):
    """Trains one client's tasks; all but `samples` and `model` is called in one thread of its own.

    model: digest of the layers; prepare: settings are those of local training, as JSON, client is the
    number that draws are keyed with; train: None where the task was cancelled.
    """

    @property
    def samples(self) -> int: ...
    @property
    def model(self) -> str: ...
    def prepare(self, settings: str, seed: int, client: int) -> None: ...
    def batches(self, batch_size: int) -> int: ...
    def train(
        self,
        opened: TaskOpening,
        weights: Arrays,
        orders: TaskOrders,
        on_profile: Callable[[float], None],
        on_step: Callable[[int], None],
    ) -> TrainedTask | None: ...
