"""Messages as tests write them: what a test is not about has a default."""

import dataclasses

from msgspec import structs

from fedpace.core.commands import GLOBAL
from fedpace.core.events import Arrived, Rates, TaskResult
from fedpace.core.facts import Evaluated
from fedpace.learn.train.job import Job

RATES = Rates(1.0, 10, 0.5, 0.5)


def arrived(
    at,
    client,
    task,
    version=0,
    *,
    depth=1,
    steps=1,
    full_steps=0,
    samples=1,
    up_bytes=1,
    rates=RATES,
    **more,
):
    """An Arrived; more: the other fields of its TaskResult."""
    result = TaskResult(depth, steps, full_steps, samples, **more)
    return Arrived(
        at=at, client=client, task=task, version=version, result=result, up_bytes=up_bytes, rates=rates
    )


def evaluated(at, version, accuracy, loss=None, slot=GLOBAL):
    """An Evaluated of a task that is tested by accuracy."""
    values = {"accuracy": accuracy, "loss": loss}
    return Evaluated(at, version, {name: one for name, one in values.items() if one is not None}, slot)


def make_job(client, task, steps, full_steps, depth, batch_size, version=0, estimate=None, **more):
    """A Job of so many steps; more: the other fields of its TaskResult."""
    result = TaskResult(depth, steps, full_steps, 0, **more)
    return Job(client, task, version, batch_size, result, estimate)


def changed_job(job, **changes):
    """A Job with other values, in its TaskResult or beside it."""
    inside = {name: changes.pop(name) for name in TaskResult.__struct_fields__ if name in changes}
    return dataclasses.replace(job, result=structs.replace(job.result, **inside), **changes)
