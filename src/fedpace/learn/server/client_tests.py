"""The main metric of a model on every client's own test samples."""

import math
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.metric import LOSS_NAME
from fedpace.data.shares import Shares
from fedpace.learn.device import at_work, open_device, place
from fedpace.learn.metrics.loss import LossTotal
from fedpace.learn.metrics.metric import Metric
from fedpace.learn.metrics.totals import Total, make_total, row_scores, transformed
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Weights
from fedpace.learn.server.evaluate import samples_at_once
from fedpace.learn.tasks.task import Task
from fedpace.learn.tree import call, count_rows


class ClientEvaluator:
    """Tests weights for each client, in one pass over all of their test samples.

    A metric over samples or tokens is taken from large batches of many clients; the loss and metrics
    over all have batches of one client each. Not a number: the client has nothing that counts.
    """

    def __init__(
        self,
        task: Task,
        layout: Layout,
        model: nn.Module,
        batch_size: int | None = None,
        device: str = "cpu",
    ) -> None:
        """model: made as the trained one was; what it draws and does not save must be the same.

        batch_size: None: what is quickest on the device.
        """
        self._task = task
        self._device = open_device(device)
        self._batch_size = batch_size or samples_at_once(model, self._device)
        self._model = place(model.eval(), self._device)
        self._bound = layout.bind(self._model)
        own = task.client_tests
        samples, shares = (task.train, task.held_out) if own is None else (task.test, own)
        self._samples, self._shares = samples.on(self._device), Shares.from_arrays(shares or ())
        main = task.metric_set.infos[0].name
        self._metric = next((one for one in task.metric_set.metrics if one.name == main), None)

    def __call__(self, weights: Weights) -> list[float]:
        """The value of the main metric for client 0, 1, ..."""
        self._bound.load(weights.on(self._device))
        metric = self._metric
        with at_work(self._device), torch.inference_mode():
            if metric is None or metric.over == "all":
                return self._one_by_one(metric)
            return self._together(metric)

    def _together(self, metric: Metric) -> list[float]:
        sums: list[Tensor] = []
        counts: list[Tensor] = []
        for batch, truth in self._batches(self._shares.places):
            outputs = call(self._model, batch)
            row_sums, row_counts = row_scores(metric, outputs, truth, count_rows(batch))
            sums.append(row_sums)
            counts.append(row_counts)
        owners, clients = self._shares.clients, len(self._shares)
        total, counted = (
            np.bincount(owners, torch.cat(one).double().cpu().numpy(), clients)
            for one in (sums, counts)
        )
        return [
            transformed(metric, float(mine / count)) if count else math.nan
            for mine, count in zip(total, counted, strict=True)
        ]

    def _one_by_one(self, metric: Metric | None) -> list[float]:
        values, problem = [], None
        for places in self._shares:
            total: Total = (
                LossTotal(self._task.loss) if metric is None else make_total(metric, self._device)
            )
            for batch, truth in self._batches(places):
                total.update(call(self._model, batch), truth, count_rows(batch))
            try:
                values.append(total.value())
            except ConfigError as error:  # a client whose samples are all of one class has no AUC
                values.append(math.nan)
                problem = error
        if problem is not None and all(map(math.isnan, values)):
            name = LOSS_NAME if metric is None else metric.name
            raise ConfigError(f"evaluate.clients: no client has a value of {name!r}: {problem}")
        return values

    def _batches(self, places: np.ndarray) -> Iterator[tuple[object, object]]:
        for start in range(0, len(places), self._batch_size):
            yield self._samples.take(places[start : start + self._batch_size])
