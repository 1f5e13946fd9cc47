"""Trains many clients at once, of whatever version: jobs of one shape are stacked.

Batches are drawn as by a `Trainer` alone, and results are its results but for rounding: sums run in
another order in a stack. They are the same bits again for the same jobs in the same calls, by the same
method; "auto" measures, and so may take another one the next time.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Self

import torch

from fedpace.core.errors import ConfigError
from fedpace.learn.device import open_device
from fedpace.learn.stack_groups import Shape, shape_of, stacks
from fedpace.learn.stack_probe import CannotStack, Way, find_way
from fedpace.learn.stack_train import StackTrainer
from fedpace.learn.stack_trial import Work, fewest_that_pay
from fedpace.learn.train import Trainer
from fedpace.learn.weights import Update

Method = Literal["one by one", "stacked", "auto"]

_BUDGET_S = {"cpu": 0.1, "cuda": 0.25}
_TRIED = 8  # jobs of one shape, at least, before it is measured what they take


class _Kind(NamedTuple):
    """Jobs that are stacked in the same way, or are not."""

    batch_size: int
    depth: int
    after_full: bool


class Stacked:
    """An Executor. method: "stacked" wherever that is possible, "auto" where it is also quicker.

    size: most jobs of a stack, None for what cache or memory has room for.
    A model, optimiser or job that cannot be stacked is trained one by one; `notes` says why.
    """

    def __init__(
        self,
        trainer: Trainer,
        method: Method = "auto",
        size: int | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if size is not None and size < 1:
            raise ConfigError(f"size is {size}; set it to 1 or more")
        self._trainer, self._method, self._size, self._clock = trainer, method, size, clock
        self._device = open_device(trainer.device)
        self._ways: dict[_Kind, Way | str] = {}  # a str says why there is none
        self._fewest: dict[int, int | None] = {}

    @property
    def appetite(self) -> int:
        """Jobs of a full stack, one where full models are not stacked."""
        slow = bool(self._fewest) and not any(self._fewest.values())
        if self._method == "one by one" or slow:
            return 1
        trainer = self._trainer
        way = self._found(_Kind(trainer.settings.batch_size, trainer.layout.depth, False))
        return self._most(way) if isinstance(way, Way) else 1

    @property
    def notes(self) -> dict[str, str]:
        """What was found out so far about jobs of each kind."""
        return {
            f"batch size {kind.batch_size}, depth {kind.depth}"
            + (" after full steps" if kind.after_full else ""): self._note(kind, way)
            for kind, way in self._ways.items()
        }

    def train(self, jobs: Work) -> list[Update]:
        found: dict[int, Update] = {}
        shapes: dict[Shape | None, list[int]] = defaultdict(list)
        layers = self._trainer.layout.depth
        for number, (job, _) in enumerate(jobs):
            self._trainer.check(job.task, job.depth, job.width)
            shapes[shape_of(job, layers, self._trainer.settings)].append(number)
        for shape, numbers in shapes.items():
            way = self._way(shape, [jobs[number] for number in numbers])
            if way is None:
                found |= {number: self._trainer.run(*jobs[number]) for number in numbers}
                continue
            runner = StackTrainer(self._trainer, way.steps, way.padded)
            for stack in stacks([job for job, _ in jobs], numbers, self._most(way)):
                updates = runner.run([jobs[number] for number in stack])
                found |= dict(zip(stack, updates, strict=True))
        return [found[number] for number in range(len(jobs))]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _way(self, shape: Shape | None, jobs: Work) -> Way | None:
        """How to stack these jobs; None: train them one by one."""
        if shape is None or self._method == "one by one" or len(jobs) < 2:
            return None
        way = self._found(_Kind(shape.batch_size, shape.depth, shape.full_steps > 0))
        if isinstance(way, str):
            return None
        if self._method == "auto":
            if shape.batch_size not in self._fewest:
                if len(jobs) < _TRIED:
                    return None
                self._fewest[shape.batch_size] = self._measured(way, jobs)
            fewest = self._fewest[shape.batch_size]
            if fewest is None or len(jobs) < fewest:
                return None
        return way

    def _found(self, kind: _Kind) -> Way | str:
        if kind not in self._ways:
            try:
                self._ways[kind] = find_way(self._trainer, *kind)
            except CannotStack as reason:
                self._ways[kind] = str(reason)
        return self._ways[kind]

    def _measured(self, way: Way, jobs: Work) -> int | None:
        runner = StackTrainer(self._trainer, way.steps, way.padded)
        alone, together = self._finished(self._one_by_one), self._finished(runner.run)
        most = jobs[: self._most(way)]
        return fewest_that_pay(alone, together, most, self._clock, _BUDGET_S[self._device.type])

    def _one_by_one(self, jobs: Work) -> list[Update]:
        return [self._trainer.run(job, weights) for job, weights in jobs]

    def _finished(self, way: Callable[[Work], Sequence[Update]]) -> Callable[[Work], None]:
        """Training that waits for the device."""

        def run(jobs: Work) -> None:
            way(jobs)
            if self._device.type == "cuda":
                torch.cuda.synchronize(self._device)

        return run

    def _most(self, way: Way) -> int:
        return self._size or way.size

    def _note(self, kind: _Kind, way: Way | str) -> str:
        if isinstance(way, str):
            return f"one by one: {way}"
        fewest = self._fewest.get(kind.batch_size, 2)
        if fewest is None:
            return "one by one: a stack is not quicker"
        return f"in stacks of {fewest} to {self._most(way)}"
