"""Trains a stack: several jobs of one shape, whose steps are made together."""

from collections.abc import Sequence

from fedpace.core.policy import step_size
from fedpace.learn.device import at_work, open_device
from fedpace.learn.many.executor import Jobs
from fedpace.learn.many.stacks.plan import StackPlan
from fedpace.learn.many.stacks.stack import Stack, StackBatches
from fedpace.learn.model.weights import Update
from fedpace.learn.train.trainer import Trainer


class StackTrainer:
    """Makes of jobs what `trainer` makes of each, but for rounding."""

    def __init__(self, trainer: Trainer, plan: StackPlan) -> None:
        self._trainer, self._steps, self._ignored = trainer, plan.steps, plan.ignored
        self._device = open_device(trainer.device)
        self.most = plan.size

    def run(self, jobs: Jobs) -> list[Update]:
        """Train jobs of one shape, those with most steps first; weights are on the device.

        The stack gets shorter when jobs at its end are done.
        """
        settings, body = self._trainer.settings, self._trainer.body(None)
        chosen, olds = [job for job, _ in jobs], [weights for _, weights in jobs]
        depth, whole = chosen[0].result.depth, body.layout.depth
        full_steps = chosen[0].result.full_steps if depth < whole else 0
        with at_work(self._device, settings.precision):
            stack = Stack(body.bound, len(jobs))
            stack.load(olds)
            batches = StackBatches(self._trainer, chosen, self._ignored)
            self._steps.begin(step_size(settings.lr, settings.decay, chosen[0].version))
            if full_steps:
                self._train(stack, whole, [full_steps] * len(jobs), batches)
                stack.restore(depth, olds)
            self._train(stack, depth, [job.result.steps - full_steps for job in chosen], batches)
            return stack.updates(jobs, settings)

    def _train(self, stack: Stack, depth: int, steps: Sequence[int], batches: StackBatches) -> None:
        """Make the steps of each row, which are never more than those of the row before."""
        alive = 0
        with self._trainer.body(None).cut(depth) as part:
            for number in range(steps[0]):
                left = sum(one > number for one in steps)
                if left != alive:
                    alive = left
                    self._steps.over(part, *stack.first_rows(alive))
                self._steps.step(batches.next(alive))
