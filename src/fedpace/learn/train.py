"""One client's training: batches in a keyed order, the full model first, then the last layers."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import torch
from torch import Tensor, nn

from fedpace.core.errors import ConfigError, PolicyError
from fedpace.core.model import ModelProfile
from fedpace.core.seeds import generator, torch_seed
from fedpace.learn.cut import Cut
from fedpace.learn.device import at_work, drawing, open_device, place, upload
from fedpace.learn.graphs import cuda_steps
from fedpace.learn.layers import Layout
from fedpace.learn.optimiser import check_optimiser, effort
from fedpace.learn.profile import Method, profile
from fedpace.learn.settings import TrainSettings
from fedpace.learn.steps import Eager, Steps
from fedpace.learn.task import Task
from fedpace.learn.weights import Update, Weights

__all__ = ["Job", "TrainSettings", "Trainer", "Update"]


@dataclass(frozen=True, slots=True)
class Job:
    """Work of one task: `steps` batches, the first `full_steps` of them with the full model.

    depth: output-side layers that the other steps train and that the update carries;
    version: of the model that it starts from, which decides the learning rate;
    last_depth: where set, the last step's backward pass is stopped after so many layers;
    width: share of every layer's channels that is trained and sent; estimate: see core's Measure.
    """

    client: int
    task: int
    steps: int
    full_steps: int
    depth: int
    batch_size: int
    version: int = 0
    last_depth: int | None = None
    width: float | None = None
    estimate: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.full_steps <= self.steps or self.steps < 1:
            raise PolicyError(
                f"task {self.task} has {self.full_steps} full steps of {self.steps} steps; "
                "give at least one step, and not more full ones than there are"
            )
        if self.depth < 1 or self.batch_size < 1:
            raise PolicyError(
                f"task {self.task} has depth {self.depth} and batch size {self.batch_size}; "
                "both must be at least 1"
            )


class Trainer:
    """Trains any client of a task, one job at a time, in one model instance.

    A result depends on the seed, the job and the weights only, not on earlier jobs. Sums inside
    torch depend on the number of threads: see `pool.single_thread`. Weights come and go on the CPU;
    model and samples are on `device` (cpu, cuda or cuda:N), whose module says what it changes.
    """

    def __init__(self, task: Task, settings: TrainSettings, seed: int, device: str = "cpu") -> None:
        check_optimiser(settings)
        self.task = task
        self.settings = settings
        self.seed = seed
        self.device = device
        self._device = open_device(device)
        self._model = self.new_model()
        self.layout = Layout.trace(self._model, task.train[0][:2])
        self._initial = self.layout.read(self._model)
        self._bound = self.layout.bind(place(self._model, self._device))
        self._samples = [one.to(self._device) for one in task.train]
        self._steps = self._new_steps()
        self._cuts: dict[int, Cut] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Trainer, (self.task, self.settings, self.seed, self.device)

    def _new_steps(self) -> Steps:
        if self._device.type == "cpu":
            return Eager(self._model, self.task.loss, self.settings)
        trained = self._bound.params(self.layout.depth)
        return cuda_steps(self._model, self.task.loss, self.settings, trained, self._device)

    def new_model(self) -> nn.Module:
        """A model as the seed makes it, with all that it draws; torch's generator stays as it is."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(torch_seed(self.seed, "model"))
            return self.task.model()

    def initial(self) -> Weights:
        """The weights that the seed gives to a new model."""
        return self._initial

    def profile(self, method: Method = "flops") -> ModelProfile:
        """What each layer costs; a clock sees whole batches, operations are counted for two samples.

        It is found on the CPU, whatever trains: a run's times do not depend on the device.
        """
        samples = self.settings.batch_size if method == "clock" else 2
        inputs, targets = (one[:samples] for one in self.task.train)
        return profile(self.new_model(), self.layout, inputs, targets, self.task.loss, method)

    def run(self, job: Job, weights: Weights) -> Update:
        """Train from `weights`; the update carries the last `depth` layers, whatever was trained.

        The optimiser is new for each task. Between the full steps and the others, the layers that
        are frozen from then on go back to `weights`; the state of the others' optimiser lives on.
        """
        full = self.layout.depth
        if job.depth > full:
            raise PolicyError(f"task {job.task} has depth {job.depth}, but the model has {full} layers")
        seed = torch_seed(self.seed, "train", job.client, job.task)
        with at_work(self._device), drawing(self._device, seed):
            old = weights.on(self._device)
            self._bound.load(old)
            self._steps.begin()
            batches = self._batches(job)
            if job.full_steps and job.depth < full:
                self._steps.train(self._cut(full), islice(batches, job.full_steps))
                self._bound.load(old, keep=job.depth)
            self._steps.train(self._cut(job.depth), batches)
            return self._update(job, old)

    def _batches(self, job: Job) -> Iterator[tuple[Tensor, Tensor]]:
        """`job.steps` batches: every epoch in its own keyed order, its last batch may be short."""
        if self.task.clients is None:
            raise ConfigError(
                f"task {self.task.name!r} is not divided among clients; call task.divided"
            )
        if not 0 <= job.client < len(self.task.clients):
            raise PolicyError(f"client {job.client} does not exist; there are {len(self.task.clients)}")
        samples = self.task.clients[job.client]
        left = job.steps
        for epoch in count():
            order = generator(self.seed, "batches", job.client, job.task, epoch).permutation(
                len(samples)
            )
            chosen = upload(torch.from_numpy(samples[order[: left * job.batch_size]]), self._device)
            inputs, targets = (one.index_select(0, chosen) for one in self._samples)
            pairs = zip(inputs.split(job.batch_size), targets.split(job.batch_size), strict=True)
            for pair in pairs:
                yield pair
                left -= 1
            if left <= 0:
                return

    def _cut(self, depth: int) -> Cut:
        if depth not in self._cuts:
            self._cuts[depth] = Cut(self._bound, depth)
        return self._cuts[depth]

    def _update(self, job: Job, old: Weights) -> Update:
        new = self._bound.read(job.depth)
        start = self.layout.start(job.depth)
        return Update(
            job.depth,
            new.params.sub_(old.params[start.params :]).cpu(),
            new.buffers.cpu(),
            new.counters.cpu(),
            effort(self.settings, job.steps),
        )
