"""Accuracy and loss of weights on a task's test samples."""

import torch
from torch import nn

from fedpace.core.errors import ConfigError
from fedpace.learn.layers import Layout
from fedpace.learn.task import Task
from fedpace.learn.weights import Weights


class Evaluator:
    """Tests weights in a model of its own."""

    def __init__(self, task: Task, layout: Layout, model: nn.Module, batch_size: int = 500) -> None:
        """model: made as the trained one was; what it draws and does not save must be the same."""
        self._task = task
        self._batch_size = batch_size
        self._model = model.eval()
        self._bound = layout.bind(self._model)

    def __call__(self, weights: Weights) -> tuple[float, float]:
        """(share of correct answers, mean loss a sample)."""
        self._bound.load(weights)
        inputs, targets = self._task.test
        correct = answers = 0
        loss = 0.0
        with torch.inference_mode():
            pairs = zip(inputs.split(self._batch_size), targets.split(self._batch_size), strict=True)
            for batch, truth in pairs:
                outputs = self._model(batch)
                hits = self._task.accuracy(outputs, truth)
                if hits.shape != truth.shape:
                    raise ConfigError(
                        f"accuracy gives shape {tuple(hits.shape)} for targets of shape "
                        f"{tuple(truth.shape)}; give one that says for each if it is right"
                    )
                correct += int(hits.sum())
                answers += hits.numel()
                loss += float(self._task.loss(outputs, truth)) * len(batch)
        return correct / answers, loss / len(inputs)
