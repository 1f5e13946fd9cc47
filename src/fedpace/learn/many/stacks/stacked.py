"""Trains many clients at once, of whatever version: jobs of one shape are stacked.

Batches are drawn as by a `Trainer` alone, and results are its results but for rounding: sums run in
another order in a stack. They are the same bits again for the same jobs in the same calls; those of a
row of dense layers on a CPU are the same whatever else is in the stack.
"""

from collections import defaultdict
from typing import NamedTuple, Self

from fedpace.core.errors import ConfigError
from fedpace.learn.device import open_device
from fedpace.learn.many.executor import Work
from fedpace.learn.many.stacks.compiled import Compiled
from fedpace.learn.many.stacks.groups import Shape, shape_of, stacks
from fedpace.learn.many.stacks.probe import CannotStack, Way, Ways
from fedpace.learn.many.stacks.replay import Replay
from fedpace.learn.many.stacks.train import StackTrainer
from fedpace.learn.model.weights import Update
from fedpace.learn.settings import Method
from fedpace.learn.train.graphs import Capture, CudaCapture
from fedpace.learn.train.reused import capturable
from fedpace.learn.train.trainer import Trainer


class _Kind(NamedTuple):
    """Jobs that are stacked in the same way, or are not."""

    batch_size: int
    depth: int
    after_full: bool


class Stacked:
    """An Executor that stacks wherever that is possible; "one by one" never does.

    size: most jobs of a stack, None for what cache or memory has room for;
    capture: how steps are made to be replayed, None for CUDA graphs on a GPU.
    A model, optimiser or job that cannot be stacked is trained one by one; `notes` says why.
    """

    def __init__(
        self,
        trainer: Trainer,
        method: Method = "stacked",
        size: int | None = None,
        capture: Capture | None = None,
    ) -> None:
        if size is not None and size < 1:
            raise ConfigError(f"size is {size}; set it to 1 or more")
        self._trainer, self._method, self._size = trainer, method, size
        self._ways: dict[_Kind, Way | str] = {}  # a str says why there is none
        self._replay: Replay | None = None
        device = open_device(trainer.device)
        self._capture = CudaCapture(device) if device.type == "cuda" and capture is None else capture
        wanted = self._capture is not None or method == "compiled"
        self._finder = Ways(trainer, wanted and capturable(trainer.settings) is not None)

    @property
    def appetite(self) -> int:
        """Jobs of a full stack, one where full models are not stacked."""
        if self._method == "one by one":
            return 1
        trainer = self._trainer
        way = self._found(_Kind(trainer.settings.batch_size, trainer.layout.depth, False))
        return self._most(way) if isinstance(way, Way) else 1

    @property
    def notes(self) -> dict[str, str]:
        """What was found out so far about jobs of each kind."""
        return {
            f"batch size {kind.batch_size}, depth {kind.depth}"
            + (" after full steps" if kind.after_full else ""): self._note(way)
            for kind, way in self._ways.items()
        }

    def train(self, jobs: Work) -> list[Update]:
        found: dict[int, Update] = {}
        shapes: dict[Shape | None, list[int]] = defaultdict(list)
        layers = self._trainer.layout.depth
        for number, (job, _) in enumerate(jobs):
            self._trainer.check(job.task, job.depth, job.width)
            shapes[shape_of(job, layers, self._trainer.settings)].append(number)
        mixed: dict[Shape, list[int]] = defaultdict(list)
        for shape, numbers in shapes.items():
            way = self._way(shape)
            if way is None or shape is None:
                found |= {number: self._trainer.run(*jobs[number]) for number in numbers}
            elif way.mixed:
                mixed[shape._replace(depth=layers, full_steps=0)] += numbers
            else:
                runner = StackTrainer(self._trainer, way.steps, way.padded)
                found |= self._in_stacks(runner, jobs, numbers, self._most(way))
        for shape, numbers in mixed.items():
            way = self._way(shape)
            if way is not None:
                replay = self._replaying(way)
                most = min(self._most(way), replay.most)
                found |= self._in_stacks(replay, jobs, numbers, most)
        return [found[number] for number in range(len(jobs))]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _in_stacks(
        self, runner: "StackTrainer | Replay", jobs: Work, numbers: list[int], most: int
    ) -> dict[int, Update]:
        found: dict[int, Update] = {}
        for stack in stacks([job for job, _ in jobs], numbers, most):
            updates = runner.run([jobs[number] for number in stack])
            found |= dict(zip(stack, updates, strict=True))
        return found

    def _replaying(self, way: Way) -> Replay:
        """One for all shapes, since it holds a stack's memory."""
        if self._replay is None:
            trainer, compiled = self._trainer, self._method == "compiled"
            settings = trainer.settings
            if trainer.device != "cpu":
                settings = capturable(settings) or settings
            gradients = Compiled(way.gradients) if compiled else way.gradients
            self._replay = Replay(
                trainer, settings, gradients, self._capture, self._most(way), compiled
            )
        return self._replay

    def _way(self, shape: Shape | None) -> Way | None:
        """How to stack jobs of a shape; None: train them one by one."""
        if shape is None or self._method == "one by one":
            return None
        way = self._found(_Kind(shape.batch_size, shape.depth, shape.full_steps > 0))
        return way if isinstance(way, Way) else None

    def _found(self, kind: _Kind) -> Way | str:
        if kind not in self._ways:
            try:
                self._ways[kind] = self._finder.find(*kind)
            except CannotStack as reason:
                self._ways[kind] = str(reason)
        return self._ways[kind]

    def _most(self, way: Way) -> int:
        return self._size or way.size

    def _note(self, way: Way | str) -> str:
        return f"one by one: {way}" if isinstance(way, str) else f"in stacks of up to {self._most(way)}"
