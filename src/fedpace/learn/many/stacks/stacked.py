"""An executor that trains many clients at once, of whatever version: jobs of one shape are stacked.

Batches are drawn as by a `Trainer` alone, and results are its results but for rounding: sums run in
another order in a stack. They are the same bits again for the same jobs in the same calls; those of a
row of dense layers on a CPU are the same whatever else is in the stack. Where the run's kernel is the
compiled one, that trains such rows.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from fedpace.core.errors import ConfigError
from fedpace.learn.device import open_device
from fedpace.learn.many.compiled.trainer import compiled_trainer
from fedpace.learn.many.executor import InlineExecutor, Jobs
from fedpace.learn.many.stacks.groups import JobShape, shape_of, stacks
from fedpace.learn.many.stacks.plan import JobKind, StackPlan, StackPlanner
from fedpace.learn.many.stacks.replay.trainer import ReplayTrainer
from fedpace.learn.many.stacks.train import StackTrainer
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.phases import PhaseClock
from fedpace.learn.train.graphs import Capture, CudaCapture
from fedpace.learn.train.reused_optimisers import capturable
from fedpace.learn.train.trainer import Job, Trainer

_Group = tuple[JobShape, StackPlan]


class StackedExecutor(InlineExecutor):
    """An executor that stacks jobs wherever that is possible.

    size: most jobs of a stack, None for what cache or memory has room for;
    capture: how steps are made to be replayed, None for CUDA graphs on a GPU; clock: is told the phases
    of a start; room: bytes that a stack may take on a GPU, None for a quarter of what is free.
    A model, optimiser or job that cannot be stacked is trained one by one; `notes` says why.
    """

    def __init__(
        self,
        trainer: Trainer,
        size: int | None = None,
        capture: Capture | None = None,
        clock: PhaseClock | None = None,
        room: int | None = None,
    ) -> None:
        if size is not None and size < 1:
            raise ConfigError(f"size is {size}; set it to 1 or more")
        self._trainer, self._device = trainer, open_device(trainer.device)
        self.device = trainer.device
        if capture is None and self._device.type == "cuda":
            capture = CudaCapture(self._device, alike=True)
        self._capture, self._clock = capture, clock or PhaseClock()
        self._replay: ReplayTrainer | None = None
        self._held: dict[int, tuple[Weights, Weights]] = {}
        """By the id of weights, these and where they were brought to."""
        self._replayed = capture is not None and capturable(trainer.settings) is not None
        self._compiled = compiled_trainer(trainer)
        with self._clock.phase("kernels"):
            self._planner = StackPlanner(trainer, size, self._replayed, self._clock, room)

    @property
    def appetite(self) -> int:
        """Jobs of a full stack, one where full models are not stacked."""
        trainer = self._trainer
        plan = self._planner.plan(JobKind(trainer.settings.batch_size, trainer.layout.depth, False))
        return 1 if plan is None else plan.size

    @property
    def divisible(self) -> bool:  # type: ignore[override]
        return self._compiled is not None

    @property
    def notes(self) -> dict[str, str]:
        """Ways in which jobs of each kind are trained, as far as they were planned."""
        return self._planner.notes

    def train(self, jobs: Jobs) -> list[Update]:
        found: dict[int, Update] = {}
        groups: dict[_Group, list[int]] = defaultdict(list)
        alone: list[int] = []
        known: dict[Hashable, _Group | None] = {}
        for number, (job, _) in enumerate(jobs):
            result = job.result
            kind = job.version, job.batch_size, job.estimate, result.depth, result.full_steps
            alike = *kind, result.width, result.last_depth
            if alike not in known:
                known[alike] = self._group(job)
            group = known[alike]
            (alone if group is None else groups[group]).append(number)
        for number in alone:
            found[number] = self._trainer.run(*jobs[number])
        for (shape, plan), numbers in groups.items():
            found |= self._in_stacks(shape, plan, jobs, numbers)
        return [found[number] for number in range(len(jobs))]

    def _group(self, job: Job) -> _Group | None:
        """What a job's stack has in common; None for jobs that are trained one by one."""
        trainer, layers = self._trainer, self._trainer.layout.depth
        trainer.check(job.task, job.result.depth, job.result.width)
        shape = shape_of(job, layers, trainer.settings)
        if shape is None:
            return None
        if self._replayed and shape.batch_size < trainer.settings.batch_size:
            # Beside jobs with batches of the usual size, theirs filled up: a graph for each size that a
            # policy comes up with would cost more than what is trained with it.
            wide = shape._replace(batch_size=trainer.settings.batch_size)
            plan = self._planner.plan(wide.kind)
            if plan is not None and plan.mixed:
                return wide.in_full(layers), plan
        plan = self._planner.plan(shape.kind)
        if plan is None:
            return None
        return shape.in_full(layers) if plan.mixed else shape, plan

    def _in_stacks(
        self, shape: JobShape, plan: StackPlan, jobs: Jobs, numbers: list[int]
    ) -> dict[int, Update]:
        run: Callable[[Jobs], list[Update]]
        if plan.mixed:
            replay = self._replaying(plan)
            run, most = partial(replay.run, width=shape.batch_size), replay.most
        else:
            runner = self._compiled or StackTrainer(self._trainer, plan)
            run, most = runner.run, runner.most
        found: dict[int, Update] = {}
        for stack in stacks(jobs, numbers, min(plan.size, most)):
            chosen = [jobs[number] for number in stack]
            here = self._brought([weights for _, weights in chosen])
            updates = run([(job, here[id(weights)]) for job, weights in chosen])
            found |= zip(stack, updates, strict=True)
        return found

    def _brought(self, weights: Sequence[Weights]) -> dict[int, Weights]:
        """Weights on the device, by the id of those given; the last ones are there already."""
        versions, before = {id(one): one for one in weights}, self._held
        self._held = {
            key: before.get(key) or (one, one.on(self._device)) for key, one in versions.items()
        }
        return {key: here for key, (_, here) in self._held.items()}

    def _replaying(self, plan: StackPlan) -> ReplayTrainer:
        """The trainer of replayed stacks of all shapes, since it holds a stack's memory."""
        if self._replay is None:
            how = plan.gradients, self._capture, plan.size, plan.ignored
            self._replay = ReplayTrainer(self._trainer, *how, self._clock)
        return self._replay
