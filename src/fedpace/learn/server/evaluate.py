"""Metrics and loss of weights on a task's test samples."""

import torch
from torch import nn

from fedpace.core.evaluation.metric import LOSS_NAME
from fedpace.learn.device import at_work, open_device, place
from fedpace.learn.metrics.loss import LossTotal
from fedpace.learn.metrics.totals import Total, make_total
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Weights
from fedpace.learn.phases import PhaseClock
from fedpace.learn.tasks.task import Task
from fedpace.learn.tree import call, count_rows


def samples_at_once(model: nn.Module, device: torch.device) -> int:
    """Samples in a batch of a test.

    On a CPU a convolution's outputs for 200 images fit a core's caches, those for 500 do not; outputs
    of dense layers are small. A GPU waits less for Python with larger batches.
    """
    dense = all(isinstance(one, nn.Linear) or not [*one.parameters(False)] for one in model.modules())
    return 500 if dense or device.type == "cuda" else 200


class Evaluator:
    """Computes the metrics of weights, in a model of its own."""

    def __init__(
        self,
        task: Task,
        layout: Layout,
        model: nn.Module,
        batch_size: int | None = None,
        device: str = "cpu",
        clock: PhaseClock | None = None,
    ) -> None:
        """model: made as the trained one was; what it draws and does not save must be the same.

        batch_size: None: what is quickest on the device; clock: is told the phases of a start.
        """
        self._task, self._clock = task, clock or PhaseClock()
        self._device = open_device(device)
        self._batch_size = batch_size or samples_at_once(model, self._device)
        self._model = place(model.eval(), self._device)
        self._bound = layout.bind(self._model)
        self._samples = task.test.on(self._device)

    def __call__(self, weights: Weights) -> dict[str, float]:
        """The value of every metric by its name, the main one first, the loss among them."""
        self._bound.load(weights.on(self._device))
        chosen = self._task.metric_set
        with self._clock.phase("evaluation"), at_work(self._device), torch.inference_mode():
            totals: dict[str, Total] = {LOSS_NAME: LossTotal(self._task.loss)}
            totals |= {one.name: make_total(one, self._device) for one in chosen.metrics}
            for batch, truth in self._samples.batches(self._batch_size):
                outputs, size = call(self._model, batch), count_rows(batch)
                for total in totals.values():
                    total.update(outputs, truth, size)
            return {info.name: totals[info.name].value() for info in chosen.infos}
