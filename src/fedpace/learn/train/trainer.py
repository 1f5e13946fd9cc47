"""One client's training: batches in a keyed order, the full model first, then the last layers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, islice
from typing import Any, Literal

import numpy as np
from torch import Tensor, nn

from fedpace.core.errors import ConfigError, PolicyError
from fedpace.core.events import TaskResult
from fedpace.core.model import COUNTED_SAMPLES, ModelProfile
from fedpace.core.policy import step_size
from fedpace.core.random.keyed import generator, torch_seed
from fedpace.core.random.seeded import generators
from fedpace.data.streams import Stream
from fedpace.learn.device import at_work, drawing, open_device
from fedpace.learn.memory import keep_freed_memory
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.model.width import ThinModel, slim
from fedpace.learn.samples.samples import ArraySamples, Batch, Samples
from fedpace.learn.settings import TrainSettings
from fedpace.learn.tasks.final_model import seeded_model
from fedpace.learn.tasks.first_pass import trace
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.estimate import estimate
from fedpace.learn.train.job import Job
from fedpace.learn.train.optimiser import check_optimiser, effort
from fedpace.learn.train.profile import ProfileMethod, profile
from fedpace.learn.train.steps import train
from fedpace.learn.train.trainable import TrainableModel
from fedpace.learn.tree import split_rows

__all__ = ["Job", "TrainSettings", "Trainer", "Update"]


class Trainer:
    """Trains any client of a task, one job at a time, in one model instance for each width.

    A result depends on the seed, the job and the weights only, not on earlier jobs. Sums inside
    torch depend on the number of threads: see `executor.single_thread`. Model and samples are on
    `device` (cpu, cuda or cuda:N), whose module says what it changes. Weights may lie anywhere: the
    last ones are kept on the device, for the tasks of one round. Updates are left on it.
    stream: how samples arrive, in the order that the task has them; None: all are there.
    A precision "by device" is settled by whoever chose the device, or it is float32.
    """

    def __init__(
        self,
        task: Task,
        settings: TrainSettings,
        seed: int,
        device: str = "cpu",
        stream: Stream | None = None,
    ) -> None:
        check_optimiser(settings)
        self.task = task
        unsettled = settings.precision == "by device"
        self.settings = replace(settings, precision="float32") if unsettled else settings
        self.seed = seed
        self.device = device
        self.stream = stream
        self._device = open_device(device)
        self._first: nn.Module | None = None
        self._first = model = self.new_model()
        self.layout = trace(task, model)
        self._initial = self.layout.read(model)
        self._samples: Samples = task.train.on(self._device)
        self._whole = TrainableModel(model, self.layout, task.loss, settings, self._device)
        self._thin: dict[float, TrainableModel] = {}
        self._held: tuple[Weights, Weights] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Trainer, (self.task, self.settings, self.seed, self.device, self.stream)

    @property
    def resident(self) -> bool:
        """Say whether all samples are on the device; others are read when a batch is gathered."""
        return self._samples.resident

    def samples_here(self) -> Batch:
        """Inputs and targets of all samples, where these are arrays in memory."""
        if not isinstance(self._samples, ArraySamples):
            raise TypeError(f"{self._samples!r} are not in memory")
        return self._samples.inputs, self._samples.targets

    def use_kernel(self, kernel: Literal["torch", "compiled"]) -> None:
        """Settle what computes steps, where the settings leave that to the machine."""
        self.settings = replace(self.settings, kernel=kernel)

    def new_model(self) -> nn.Module:
        """A model as the seed makes it, with all that it draws; torch's generator stays as it is."""
        model = seeded_model(self.task, self.seed)
        if model is self._first:
            raise ConfigError(
                "the task's model() gives the same model each time, and its weights would be shared; "
                "build a new one in it, or give the model itself"
            )
        return model

    def initial(self) -> Weights:
        """The weights that the seed gives to a new model."""
        return self._initial

    def profile(self, method: ProfileMethod = "flops", widths: Sequence[float] = ()) -> ModelProfile:
        """Costs of each layer and of each of `widths`.

        A clock sees whole batches and the optimiser, operations are counted for two samples. It is
        found on the CPU, whatever trains: a run's times do not depend on the device.
        """
        samples = self.settings.batch_size if method == "clock" else COUNTED_SAMPLES
        inputs, targets = self.task.train.first(samples)
        model, loss = self.new_model(), self.task.loss
        return profile(model, self.layout, inputs, targets, loss, method, widths, self.settings)

    def count_operations(self, counted: ModelProfile | None = None) -> float:
        """Operations of a step of the full model for one sample: those of a batch, divided.

        counted: a profile by operations that is there already.
        """
        samples = min(COUNTED_SAMPLES, len(self.task.train))
        return (counted or self.profile("flops")).step_cost / samples

    def slim(self, width: float) -> ThinModel:
        """The model with a share of its channels, on the CPU and at its initial weights."""
        return slim(self.new_model(), self.layout, self.task.train.first(2)[0], width)

    def run(self, job: Job, weights: Weights) -> Update:
        """Train from the full model's `weights`; the update carries the last `depth` layers.

        The optimiser is new for each task. Between the full steps and the others, the layers that
        are frozen from then on go back to `weights`; the state of the others' optimiser lives on.
        """
        self.check(job.task, job.result.depth, job.result.width)
        body = self.body(job.result.width)
        with self.begun(body, job.client, job.task, job.version, weights) as old:
            last = _train(body, job.result, old, self._batches(job))
            return self.update(body, old, job.result, job.estimate, last)

    def check(self, task: int, depth: int, width: float | None) -> None:
        """Refuse what the model cannot be trained at."""
        full = self.layout.depth
        if depth > full:
            raise PolicyError(f"task {task} has depth {depth}, but the model has {full} layers")
        if width is not None and depth < full:
            raise PolicyError(
                f"task {task} has width {width} and depth {depth} of {full}; "
                "a thinner model is trained in full depth"
            )

    def body(self, width: float | None) -> TrainableModel:
        """The model that tasks of that width are trained in; None is the full one."""
        if width is None:
            return self._whole
        if width not in self._thin:
            made = self.slim(width)
            self._thin[width] = TrainableModel.thin(made, self.task.loss, self.settings, self._device)
        return self._thin[width]

    @contextmanager
    def begun(
        self, body: TrainableModel, client: int, task: int, version: int, weights: Weights
    ) -> Iterator[Weights]:
        """While entered, `body` trains a task that starts from its part of `weights`; gives that."""
        if self._device.type == "cpu":
            keep_freed_memory()
        seed = torch_seed(self.seed, "train", client, task)
        with at_work(self._device, self.settings.precision), drawing(self._device, seed):
            old = body.take(self._here(weights))
            body.bound.load(old)
            body.begin(step_size(self.settings.lr, self.settings.decay, version))
            yield old

    def update(
        self,
        body: TrainableModel,
        old: Weights,
        result: TaskResult,
        wanted: Literal["numbers", "gradient"] | None,
        last: Batch | None,
    ) -> Update:
        """The update that a task's steps, the last of them on the batch `last`, made of `old` weights.

        wanted: the estimate that goes with it.
        """
        found, gradient = None, None
        if wanted and last:
            found, gradient = estimate(body.bound, self.task.loss, *last, old)
        new = body.bound.read(result.depth).on(self._device)
        return Update(
            result.depth,
            new.params.sub_(old.params[body.layout.start(result.depth).params :]),
            new.buffers,
            new.counters,
            effort(self.settings, result.steps),
            result.width,
            found,
            gradient.float() if gradient is not None and wanted == "gradient" else None,
        )

    def samples(self, job: Job) -> np.ndarray:
        """Places of the samples that a job draws its batches from."""
        if self.task.clients is None:
            raise ConfigError(
                f"task {self.task.name!r} is not divided among clients; call task.divided"
            )
        if not 0 <= job.client < len(self.task.clients):
            raise PolicyError(f"client {job.client} does not exist; there are {len(self.task.clients)}")
        samples, seen = self.task.clients[job.client], job.result.seen
        if seen is None:
            return samples
        if self.stream is None:
            raise ConfigError(
                f"client {job.client} has seen {seen} samples by task {job.task}, but this trainer's "
                "data does not arrive over time; give it the run's stream"
            )
        return samples[self.stream.held(job.client, seen)]

    def epochs(self, client: int, task: int, samples: np.ndarray) -> Iterator[np.ndarray]:
        """A client's samples as a task goes through them, an order of its own for each epoch."""
        for epoch in count():
            draw = generator(self.seed, "batches", client, task, epoch)
            yield samples[draw.permutation(len(samples))]

    def orders(self, jobs: Sequence[Job]) -> list[list[np.ndarray]]:
        """Samples of each job as `epochs` gives them, as many times as its steps go through them."""
        own = [self.samples(job) for job in jobs]
        passes = [
            -(-job.result.steps // max(-(-len(samples) // job.batch_size), 1))
            for job, samples in zip(jobs, own, strict=True)
        ]
        keys = [
            (job.client, job.task, epoch)
            for job, count in zip(jobs, passes, strict=True)
            for epoch in range(count)
        ]
        draws = generators(self.seed, "batches", keys)
        return [
            [samples[draw.permutation(len(samples))] for draw in islice(draws, count)]
            for samples, count in zip(own, passes, strict=True)
        ]

    def batch_places(
        self, client: int, task: int, samples: np.ndarray, batch_size: int
    ) -> Iterator[np.ndarray]:
        """Places of a task's samples, batch after batch, without end."""
        for order in self.epochs(client, task, samples):
            for start in range(0, max(len(order), 1), batch_size):
                yield order[start : start + batch_size]

    def gather(self, places: np.ndarray) -> Batch:
        """Samples of the task, on the device."""
        return self._samples.take(places)

    def pick(self, places: Tensor) -> Batch:
        """Samples of the task, by places that are on the device."""
        return self._samples.pick(places)

    def _here(self, weights: Weights) -> Weights:
        """The weights on the device; those of one round, from which many tasks start, come once."""
        if self._device.type == "cpu":
            return weights.on(self._device)
        if self._held is None or self._held[0] is not weights:
            self._held = weights, weights.on(self._device)
        return self._held[1]

    def _batches(self, job: Job) -> Iterator[Batch]:
        """All batches of a job: every epoch in its own keyed order, its last batch may be short."""
        left = job.result.steps
        for order in self.epochs(job.client, job.task, self.samples(job)):
            for batch in self._epoch(order[: left * job.batch_size], job.batch_size):
                yield batch
                left -= 1
            if left <= 0:
                return

    def _epoch(self, places: np.ndarray, size: int) -> Iterator[Batch]:
        """Batches of an epoch: of one gathering where samples are in memory, else read one by one."""
        if not self._samples.resident:
            return map(self.gather, np.split(places, range(size, len(places), size)))
        inputs, targets = self.gather(places)
        return zip(split_rows(inputs, size), split_rows(targets, size), strict=True)


def _train(
    body: TrainableModel, result: TaskResult, old: Weights, batches: Iterator[Batch]
) -> Batch | None:
    """Make a job's steps; gives its last batch."""
    full, last = body.layout.depth, None
    if result.full_steps and result.depth < full:
        last = train(body.steps, body.cut(full), islice(batches, result.full_steps))
        body.bound.load(old, keep=result.depth)
    if result.last_depth is None:
        return train(body.steps, body.cut(result.depth), batches) or last
    train(body.steps, body.cut(result.depth), islice(batches, result.steps - 1))
    return train(body.steps, body.stopped(result.last_depth), batches)
