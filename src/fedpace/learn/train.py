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
from fedpace.learn.layers import Layout
from fedpace.learn.optimiser import check_optimiser, client_optimiser
from fedpace.learn.profile import Method, profile
from fedpace.learn.settings import TrainSettings
from fedpace.learn.task import Task
from fedpace.learn.weights import Update, Weights

__all__ = ["Job", "TrainSettings", "Trainer", "Update"]


@dataclass(frozen=True, slots=True)
class Job:
    """Work of one task: `steps` batches, the first `full_steps` of them with the full model.

    depth: output-side layers that the other steps train and that the update carries.
    """

    client: int
    task: int
    steps: int
    full_steps: int
    depth: int
    batch_size: int

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
    torch depend on the number of threads: see `pool.single_thread`.
    """

    def __init__(self, task: Task, settings: TrainSettings, seed: int) -> None:
        check_optimiser(settings)
        self.task = task
        self.settings = settings
        self.seed = seed
        self._model = self.new_model()
        self.layout = Layout.trace(self._model, task.train[0][:2])
        self._bound = self.layout.bind(self._model)
        self._initial = self._bound.read(self.layout.depth)
        self._cuts: dict[int, Cut] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return Trainer, (self.task, self.settings, self.seed)

    def new_model(self) -> nn.Module:
        """A model as the seed makes it, with all that it draws; torch's generator stays as it is."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(torch_seed(self.seed, "model"))
            return self.task.model()

    def initial(self) -> Weights:
        """The weights that the seed gives to a new model."""
        return self._initial

    def profile(self, method: Method = "flops") -> ModelProfile:
        """What each layer costs; a clock sees whole batches, operations are counted for two samples."""
        samples = self.settings.batch_size if method == "clock" else 2
        inputs, targets = (one[:samples] for one in self.task.train)
        self._bound.load(self._initial)
        return profile(self._model, self.layout, inputs, targets, self.task.loss, method)

    def run(self, job: Job, weights: Weights) -> Update:
        """Train from `weights`; the update carries the last `depth` layers, whatever was trained.

        The optimiser is new for each task. Between the full steps and the others, the layers that
        are frozen from then on go back to `weights`; the state of the others' optimiser lives on.
        """
        full = self.layout.depth
        if job.depth > full:
            raise PolicyError(f"task {job.task} has depth {job.depth}, but the model has {full} layers")
        self._bound.load(weights)
        with torch.random.fork_rng(devices=[]):
            # Not torch.manual_seed: it also queues a call with its stack for every kind of
            # accelerator, which takes 0.2 ms and is never freed on a machine without one.
            torch.default_generator.manual_seed(torch_seed(self.seed, "train", job.client, job.task))
            batches = self._batches(job)
            optimiser = None
            if job.full_steps and job.depth < full:
                optimiser = self._train(full, islice(batches, job.full_steps), None)
                self._bound.load(weights, keep=job.depth)
            self._train(job.depth, batches, optimiser)
        return self._update(job.depth, weights)

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
            chosen = torch.from_numpy(samples[order[: left * job.batch_size]])
            inputs, targets = (one.index_select(0, chosen) for one in self.task.train)
            pairs = zip(inputs.split(job.batch_size), targets.split(job.batch_size), strict=True)
            for pair in pairs:
                yield pair
                left -= 1
            if left <= 0:
                return

    def _train(
        self,
        depth: int,
        batches: Iterator[tuple[Tensor, Tensor]],
        earlier: torch.optim.Optimizer | None,
    ) -> torch.optim.Optimizer:
        if depth not in self._cuts:
            self._cuts[depth] = Cut(self._bound, depth)
        cut = self._cuts[depth]
        model, loss = self._model, self.task.loss
        optimiser = client_optimiser(self.settings, cut.trained)
        if earlier is not None:
            optimiser.state.update((p, earlier.state[p]) for p in cut.trained if p in earlier.state)
        with cut:
            for inputs, targets in batches:
                if len(inputs) == 1:
                    with cut.lone_sample():
                        value = loss(model(inputs), targets)
                else:
                    value = loss(model(inputs), targets)
                if value.requires_grad:  # not so where the loss uses none of the trained layers
                    optimiser.zero_grad()
                    torch.autograd.backward(value)
                    optimiser.step()
        return optimiser

    def _update(self, depth: int, old: Weights) -> Update:
        new = self._bound.read(depth)
        start = self.layout.start(depth)
        return Update(depth, new.params.sub_(old.params[start.params :]), new.buffers, new.counters)
