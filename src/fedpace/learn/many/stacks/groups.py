"""Groups jobs into stacks, by what the jobs of a stack must have in common."""

from collections.abc import Sequence
from typing import NamedTuple

from fedpace.core.policy import step_size
from fedpace.learn.many.executor import Jobs
from fedpace.learn.many.stacks.plan import JobKind
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.job import Job


class JobShape(NamedTuple):
    """Numbers that the jobs of a stack have in common; the number of steps is not one of them."""

    batch_size: int
    depth: int
    full_steps: int
    lr: float

    @property
    def kind(self) -> JobKind:
        return JobKind(self.batch_size, self.depth, self.full_steps > 0)

    def in_full(self, layers: int) -> "JobShape":
        """The shape of jobs beside which these lie, in a stack of models that are trained in full."""
        return self._replace(depth=layers, full_steps=0)


def shape_of(job: Job, layers: int, settings: TrainSettings) -> JobShape | None:
    """A job's shape; None for jobs that are never stacked: thinner models, stopped steps, estimates.

    layers: of the model; full steps of a job that trains all of them are steps like the others.
    """
    if job.result.width is not None or job.result.last_depth is not None or job.estimate is not None:
        return None
    lr = step_size(settings.lr, settings.decay, job.version)
    result = job.result
    return JobShape(job.batch_size, result.depth, result.full_steps if result.depth < layers else 0, lr)


def stacks(jobs: Jobs, numbers: Sequence[int], most: int) -> list[list[int]]:
    """`numbers` of jobs in stacks of about equal size, `most` at most, with similar steps in each.

    Jobs with most steps come first; among equals, those of one version lie together.
    """
    ordered = sorted(numbers, key=lambda number: -jobs[number][0].result.steps)
    count = -(-len(ordered) // most)
    cuts = [len(ordered) * at // count for at in range(count + 1)]
    return [_alike_together(jobs, ordered[cuts[at] : cuts[at + 1]]) for at in range(count)]


def _alike_together(jobs: Jobs, numbers: list[int]) -> list[int]:
    versions: dict[int, int] = {}
    for number in numbers:
        versions.setdefault(id(jobs[number][1]), len(versions))
    return sorted(numbers, key=lambda n: (-jobs[n][0].result.steps, versions[id(jobs[n][1])]))
