"""Training on a real machine: how far a task gets is found out by a clock, while it runs.

In simulation it is known beforehand (`sim.timeline`, `sim.layerwise`), and `Trainer` trains just that.
Here batches, draws and steps are those of a Trainer with the same seed, client and task number, so that
the update of a task is the one that a simulated task of the same steps and depths has.
Differs: a batch that is under way when work comes is always finished and counted, also where the work
does not want it any more.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
import torch

from fedpace.core.commands import Work
from fedpace.core.errors import ConfigError, PeerError
from fedpace.core.events import TaskResult
from fedpace.core.model import ModelProfile
from fedpace.learn.device import open_device
from fedpace.learn.model.arrays import layout_digest
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Weights
from fedpace.learn.samples.samples import Batch
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.live_task import Clock, LiveTask
from fedpace.learn.train.orders import LiveResult, TaskOpening, TaskOrders
from fedpace.learn.train.profile import profile
from fedpace.learn.train.trainable import TrainableModel
from fedpace.learn.train.trainer import Trainer


class LiveTrainer:
    """Trains one client's own data, all of `task.train`, one task after the other.

    Model, data and buffers stay where they are between tasks, whatever ended them. Everything but
    `TaskOrders` belongs to one thread; torch's generators, which a task sets to its own seed and puts
    back, belong to the process: what trains beside it needs a process of its own.
    profile: what layers cost; None: found here, by counting operations.
    """

    def __init__(
        self,
        task: Task,
        settings: TrainSettings,
        seed: int,
        client: int,
        device: str = "cpu",
        profile: ModelProfile | None = None,
    ) -> None:
        self.client = client
        self._trainer = Trainer(task, settings, seed, device)
        self._device = open_device(device)
        self._own = np.arange(len(task.train))
        self._profile = self._counted() if profile is None else profile
        if self._profile.depth != self.layout.depth:
            raise ConfigError(
                f"the profile has {self._profile.depth} layers, but the model has {self.layout.depth}; "
                "give the profile of this model"
            )
        self._thin: dict[float, float] = {width.share: width.compute for width in self._profile.widths}

    @property
    def samples(self) -> int:
        return len(self._own)

    @property
    def layout(self) -> Layout:
        return self._trainer.layout

    @property
    def digest(self) -> str:
        """Digest of the model's layers; a server whose digest is another has another model."""
        return layout_digest(self.layout, self._trainer.body(None).model)

    def initial(self) -> Weights:
        """The weights that the seed gives to a new model."""
        return self._trainer.initial()

    def batches(self, batch_size: int) -> int:
        """Batches in one epoch."""
        return math.ceil(self.samples / batch_size)

    def warm_up(self, batch_size: int) -> None:
        """Train one batch for nothing: the first one of a thread takes longer than all others."""
        orders = TaskOrders()
        orders.work(Work(batch_size, steps=1))
        self.train(TaskOpening(0, 0, batch_size), self.initial(), orders, lambda: 0.0)

    def train(
        self,
        opened: TaskOpening,
        weights: Weights,
        orders: TaskOrders,
        clock: Clock,
        on_profile: Callable[[float], None] = lambda batch_s: None,
        on_step: Callable[[int], None] = lambda steps: None,
    ) -> LiveResult | None:
        """Train one task from the full model's `weights`, as `orders` say; None: it was cancelled.

        on_profile: called with the seconds of a probe's batch; on_step: after every batch, with how
        many there are. Blocks while there is no work to do, and never looks at the clock for that.
        A task that fails with an error leaves everything ready for the next.
        """
        work = None if opened.probe else orders.wait()
        if work is None and not opened.probe:
            return None
        width = None if work is None else work.width
        body = self._trainer.body(width)
        shares = self._shares(width)
        with self._trainer.begun(body, self.client, opened.task, opened.version, weights) as old:
            batches, now = self._batches(opened), self._settled(clock)
            task = LiveTask(body, batches, opened, self.samples, shares, orders, now, on_step)
            if opened.probe:
                task.probe(on_profile)
                work = orders.wait()
            if work is None:
                return None
            self._check(opened, work)
            task.carry_out(work, old)
            return None if orders.cancelled else self._result(task, work, body, old)

    def _check(self, opened: TaskOpening, work: Work) -> None:
        self._trainer.check(opened.task, work.depth or self.layout.depth, work.width)
        if work.batch_size != opened.batch_size or (opened.probe and work.width is not None):
            raise PeerError(
                f"task {opened.task} got {work!r}, which does not match how it was opened: {opened!r}; "
                "keep its batch size, and do not probe a task that has a width"
            )

    def _result(self, task: LiveTask, work: Work, body: TrainableModel, old: Weights) -> LiveResult:
        result = TaskResult(
            task.depth,
            task.steps,
            task.full_steps,
            min(task.trained, self.samples),
            task.trained,
            cut=task.steps < task.total or task.last_depth is not None,
            last_depth=task.last_depth,
            width=work.width,
            first_s=task.times.first_s,
        )
        if not task.steps:
            return LiveResult(result, math.nan, None)
        update = self._trainer.update(body, old, result, work.estimate, task.last)
        return LiveResult(result, task.times.full_s, update)

    def _batches(self, opened: TaskOpening) -> Iterator[Batch]:
        """Batches without end, one by one: what one takes does not depend on the epoch's length."""
        trainer, size = self._trainer, opened.batch_size
        return map(trainer.gather, trainer.batch_places(self.client, opened.task, self._own, size))

    def _settled(self, clock: Clock) -> Clock:
        """The clock, once all that was begun is done."""
        if self._device.type == "cpu":
            return clock

        def read() -> float:
            torch.cuda.synchronize(self._device)
            return clock()

        return read

    def _shares(self, width: float | None) -> list[float]:
        """Cost of a step at each depth over that of a step of the full model."""
        if width is None:
            return [float(share) for share in self._profile.compute_share]
        if width not in self._thin:
            self._thin[width] = self._counted(width).width(width).compute
        return [self._thin[width]] * self.layout.depth

    def _counted(self, *widths: float) -> ModelProfile:
        # The first and the last sample, because one alone has no batch statistics.
        trainer, task = self._trainer, self._trainer.task
        inputs, targets = task.train.take(np.array([0, len(task.train) - 1]))
        return profile(trainer.new_model(), trainer.layout, inputs, targets, task.loss, "flops", widths)
