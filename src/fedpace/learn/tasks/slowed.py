"""A task as a slower machine would train it, for trying things out."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor

from fedpace.learn.tasks.task import Task


def slow_down(task: Task, factor: float) -> Task:
    """The task, a batch of which takes `factor` times as long."""
    return task if factor == 1 else replace(task, loss=_SlowLoss(task.loss, factor))


class _SlowLoss:
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
