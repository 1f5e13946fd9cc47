"""The learning side of a run, put together from its settings for both clocks."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.metric import MetricInfo
from fedpace.core.model import ModelProfile
from fedpace.data.by_speed import sort_by_speed
from fedpace.data.held_out import hold_out
from fedpace.data.partition import partition
from fedpace.data.shares import Shares
from fedpace.data.streams import Stream, make_stream, order_of_arrival
from fedpace.learn import files
from fedpace.learn.device import open_device
from fedpace.learn.many.choice import choose_kernel
from fedpace.learn.model.weights import Weights
from fedpace.learn.phases import PhaseClock
from fedpace.learn.server.client_tests import ClientEvaluator
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.server.history.last_updates import check_fits
from fedpace.learn.server.model_server import ModelServer, UpdateSource
from fedpace.learn.server.store import ModelStore
from fedpace.learn.tasks.digest import model_digest
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer
from fedpace.runs.config import Config, PolicyPlan

_KERNELS: Mapping[str, Literal["torch", "compiled"]] = {"torch": "torch", "compiled": "compiled"}


def divide(
    task: Task, config: Config, sample_s: np.ndarray | None = None
) -> tuple[Task, Sequence[int], Stream | None]:
    """The task divided among a simulated run's clients, their samples, and how those arrive.

    sample_s: seconds a sample of each client's device, where classes are to follow them.
    """
    correlation = config.partition.speed_correlation
    if task.clients is not None and correlation > 0:
        raise ConfigError(
            f"partition.speed_correlation is {correlation}, but the task's samples are divided among "
            "its clients already; set it to 0, or give a task without clients"
        )
    if task.clients is None:
        division, instead = config.partition, "use partition.kind 'iid', or give clients"
        labels = np.zeros(len(task.train), dtype=np.int64)  # an iid partition does not look at them
        if division.kind != "iid":
            labels = task.train.class_labels(f"a {division.kind} partition", instead)
        shares = partition(labels, config.client_count, division, config.seed)
        if correlation > 0 and sample_s is not None:
            labels = task.train.class_labels("partition.speed_correlation", "set it to 0")
            shares = sort_by_speed(shares, labels, sample_s, correlation, config.seed)
        task = task.divided(shares)
    shares = Shares.from_arrays(task.clients or ())
    if config.evaluate.clients and not config.timing_only:
        if task.client_tests is None:
            shares, held = hold_out(shares, config.evaluate.held_out, config.seed)
            task = replace(task, clients=shares, held_out=held)
        elif len(task.client_tests) != len(shares):
            raise ConfigError(
                f"client_tests has {len(task.client_tests)} clients, but {len(shares)} train; give one "
                "array of test indices a client"
            )
    samples = array("q", shares.sizes.tobytes())
    stream = make_stream(config.stream, samples, config.seed)
    if stream is not None and not task.ordered:
        labels, content = np.zeros(len(task.train), dtype=np.int64), stream.settings.content
        if content == "continuous":
            instead = "use stream.content 'iid'"
            labels = task.train.class_labels("a continuous stream", instead)
        task = task.divided(order_of_arrival(shares, labels, content, config.seed))
    return task, samples, stream


class Learning:
    """A run's task, its trainer and its model's profile.

    timed: a profile that is known already; stream: how clients' samples arrive; clock: is told the
    phases of the start.
    """

    def __init__(
        self,
        task: Task,
        config: Config,
        plan: PolicyPlan,
        device: str,
        timed: ModelProfile | None = None,
        stream: Stream | None = None,
        clock: PhaseClock | None = None,
    ) -> None:
        self._clock = clock = clock or PhaseClock()
        self._task, self._server, self._saved = task, plan.server, config.weights
        self._by_client = config.evaluate.clients
        self._counted = config.profile == "flops"
        with clock.phase("model"):
            self.trainer = Trainer(task, plan.train, config.seed, device, stream)
        if plan.server.memory != "none":
            size = len(self.trainer.initial().params)
            check_fits(config.client_count, size, self.trainer.device)
        with clock.phase("profile"):
            self.profile = timed or self.trainer.profile(config.profile, plan.widths)

    def count_operations(self) -> float:
        """Operations of a step of the full model for one sample."""
        return self.trainer.count_operations(self.profile if self._counted else None)

    def settle_kernel(self, earlier: Mapping[str, Any] | None) -> dict[str, str]:
        """Settle what computes steps, where settings leave it open; settings for the run's header.

        earlier: those of training in the header of a run that is gone on with, which keeps to its
        arithmetic; one that is older than the choice was computed by torch, and does not say so.
        """
        trainer = self.trainer
        if earlier is None or trainer.settings.kernel != "auto":
            kernel = choose_kernel(trainer)
        else:
            kernel = _KERNELS.get(earlier.get("kernel", "torch"))
        if kernel is None:
            return {}
        trainer.use_kernel(kernel)
        return {"kernel": kernel} if earlier is None or "kernel" in earlier else {}

    def models(self, source: UpdateSource, guarded: bool = False, device: str = "cpu") -> ModelServer:
        """A model server at the model's initial weights. guarded: see there; device: of its models."""
        trainer = self.trainer
        evaluator = Evaluator(
            self._task, trainer.layout, trainer.new_model(), device=trainer.device, clock=self._clock
        )
        store = ModelStore(
            trainer.layout,
            trainer.initial(),
            self._server,
            evaluator,
            trainer.slim,
            open_device(device),
        )
        if not self._by_client:
            return ModelServer(store, source, guarded=guarded)
        tests = ClientEvaluator(self._task, trainer.layout, trainer.new_model(), device=trainer.device)
        return ModelServer(store, source, tests, guarded)

    @property
    def precision(self) -> str:
        """Precision of products in training."""
        return self.trainer.settings.precision

    @property
    def metrics(self) -> tuple[MetricInfo, ...]:
        """What models are tested by, the main one first."""
        return self._task.metric_set.infos

    def save(self, path: Path, weights: Weights) -> None:
        """Write a model as a state dict, ready for `model.load_state_dict`."""
        files.save(path, self.state_dict(weights))

    def state_dict(self, weights: Weights) -> dict[str, Any]:
        """A model's tensors by name.

        With `weights = "trainable"` without its constants, for `load_state_dict(..., strict=False)`.
        """
        model, layout = self.trainer.new_model(), self.trainer.layout
        layout.bind(model).load(weights)
        state = model.state_dict(keep_vars=True)
        if self._saved == "trainable":
            constant = {id(state[name]) for name in layout.constants}
            state = {name: value for name, value in state.items() if id(value) not in constant}
        return {name: value.detach().clone() for name, value in state.items()}

    @property
    def digest(self) -> str:
        """Digest of the model; a client whose digest is another has another model or frozen base."""
        return model_digest(self._task)
