"""Accuracy and loss of weights on a task's test samples."""

import torch
from torch import Tensor, nn

from fedpace.core.errors import ConfigError
from fedpace.learn.device import at_work, open_device, place
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Weights
from fedpace.learn.tasks.task import Task
from fedpace.learn.tree import call, count_rows


class Evaluator:
    """Computes accuracy and loss of weights, in a model of its own."""

    def __init__(
        self, task: Task, layout: Layout, model: nn.Module, batch_size: int = 500, device: str = "cpu"
    ) -> None:
        """model: made as the trained one was; what it draws and does not save must be the same."""
        self._task = task
        self._batch_size = batch_size
        self._device = open_device(device)
        self._model = place(model.eval(), self._device)
        self._bound = layout.bind(self._model)
        self._samples = task.test.on(self._device)

    def __call__(self, weights: Weights) -> tuple[float, float]:
        """The share of correct answers, and the mean loss a sample."""
        self._bound.load(weights.on(self._device))
        answers = 0
        sizes, correct, losses = [], [], []
        with at_work(self._device), torch.inference_mode():
            for batch, truth in self._samples.batches(self._batch_size):
                outputs = call(self._model, batch)
                hits = self._task.accuracy(outputs, truth)
                if isinstance(truth, Tensor) and hits.shape != truth.shape:
                    raise ConfigError(
                        f"accuracy gives shape {tuple(hits.shape)} for targets of shape "
                        f"{tuple(truth.shape)}; give one that says for each if it is right"
                    )
                answers += hits.numel()
                sizes.append(count_rows(batch))
                # Read at the end: a GPU would be waited for each time.
                correct.append(hits.sum())
                losses.append(self._task.loss(outputs, truth))
        loss = 0.0
        for mean, size in zip(losses, sizes, strict=True):
            loss += float(mean) * size
        return sum(map(int, correct)) / answers, loss / sum(sizes)
