"""Which jobs may lie in one stack, and how many of them do."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from fedpace.core.schedule import step_size
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.job import Job

_CPU_BYTES = 8 * 2**20
"""A stack on a CPU should stay in the cache: 25 to 30 models of 26 thousand parameters."""

_MOST, _FEWEST = 128, 8


class Shape(NamedTuple):
    """What the jobs of a stack have in common; the number of steps is not in it."""

    batch_size: int
    depth: int
    full_steps: int
    lr: float


def shape_of(job: Job, layers: int, settings: TrainSettings) -> Shape | None:
    """None for jobs that are never stacked: thinner models, stopped last steps, estimates.

    layers: of the model; full steps of a job that trains all of them are steps like the others.
    """
    if job.width is not None or job.last_depth is not None or job.estimate is not None:
        return None
    lr = step_size(settings.lr, settings.decay, job.version)
    return Shape(job.batch_size, job.depth, job.full_steps if job.depth < layers else 0, lr)


def stacks(jobs: Sequence[Job], numbers: Sequence[int], most: int) -> list[list[int]]:
    """`numbers` of jobs in stacks of about equal size, `most` at most, with similar steps in each."""
    ordered = sorted(numbers, key=lambda number: -jobs[number].steps)
    count = -(-len(ordered) // most)
    cuts = [len(ordered) * at // count for at in range(count + 1)]
    return [ordered[cuts[at] : cuts[at + 1]] for at in range(count)]


def stack_size(job_bytes: int, device: torch.device) -> int:
    """How many jobs a stack has at most, where each takes so many bytes."""
    if device.type == "cpu":
        return min(max(_CPU_BYTES // job_bytes, _FEWEST), _MOST)
    free, _ = torch.cuda.mem_get_info(device)
    return min(max(free // 4 // job_bytes, 1), _MOST)
