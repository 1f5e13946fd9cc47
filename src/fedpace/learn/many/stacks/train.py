"""Trains a stack: several jobs of one shape, whose steps are made together."""

from collections.abc import Sequence

from fedpace.core.schedule import step_size
from fedpace.learn.device import at_work, open_device
from fedpace.learn.many.stacks.stack import Batches, Stack, alike_together
from fedpace.learn.many.stacks.steps import StackSteps
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.train.optimiser import effort
from fedpace.learn.train.trainer import Job, Trainer


class StackTrainer:
    """Makes of jobs what `trainer` makes of each, but for rounding.

    padded: short batches are filled up, see `stack.Batches`.
    """

    def __init__(self, trainer: Trainer, steps: StackSteps, padded: bool) -> None:
        self._trainer, self._steps, self._padded = trainer, steps, padded
        self._device = open_device(trainer.device)

    def run(self, jobs: Sequence[tuple[Job, Weights]]) -> list[Update]:
        """Train jobs of the same depth, full steps and learning rate; updates come in their order.

        Those with most steps lie first in the stack, so that it gets shorter when others end.
        """
        settings, body = self._trainer.settings, self._trainer.body(None)
        order = alike_together(jobs)
        chosen = [jobs[number][0] for number in order]
        depth, whole = chosen[0].depth, body.layout.depth
        full_steps = chosen[0].full_steps if depth < whole else 0
        versions = {id(weights): weights for _, weights in jobs}
        here = {key: weights.on(self._device) for key, weights in versions.items()}
        with at_work(self._device, settings.precision):
            stack = Stack(body.bound, [here[id(jobs[number][1])] for number in order])
            batches = Batches(self._trainer, chosen, self._padded)
            self._steps.begin(step_size(settings.lr, settings.decay, chosen[0].version))
            if full_steps:
                self._train(stack, whole, [full_steps] * len(jobs), batches)
                stack.restore(depth)
            self._train(stack, depth, [job.steps - full_steps for job in chosen], batches)
            updates = stack.updates(depth, [effort(settings, job.steps) for job in chosen])
        found = dict(zip(order, updates, strict=True))
        return [found[number] for number in range(len(jobs))]

    def _train(self, stack: Stack, depth: int, steps: Sequence[int], batches: Batches) -> None:
        """steps: for each row, never more than in the row before."""
        alive = 0
        with self._trainer.body(None).cut(depth) as part:
            for number in range(steps[0]):
                left = sum(one > number for one in steps)
                if left != alive:
                    alive = left
                    params = [param[:alive] for param in stack.params]
                    buffers = {name: value[:alive] for name, value in stack.buffers.items()}
                    self._steps.over(part, params, buffers)
                self._steps.step(batches.next(alive))
