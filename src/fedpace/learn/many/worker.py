"""The loop of a worker process: orders come by a pipe, updates go back through shared memory."""

import os
import pickle
import signal
import traceback
from dataclasses import fields
from multiprocessing.connection import Connection
from operator import attrgetter
from typing import Any, NamedTuple

from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.core.host import end_with_parent
from fedpace.learn.many import shared_memory as shared
from fedpace.learn.many.executor import Executor, single_thread
from fedpace.learn.train.job import Job

_values = attrgetter(*(field.name for field in fields(Job)))


class PackedJobs(NamedTuple):
    """Jobs as plain values, which take a tenth of the time of a Job on the way.

    starts: for each the block of the weights that it begins with; results: the block for updates.
    """

    jobs: list[tuple[Any, ...]]
    starts: list[str]
    results: str


def packed(jobs: list[Job], starts: list[str], results: str) -> bytes:
    """Bytes of an order, as they go through the pipe."""
    return pickle.dumps(PackedJobs([_values(job) for job in jobs], starts, results))


def work(line: Connection, sizes: shared.ModelSizes) -> None:
    """Carry out orders until there are no more."""
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):  # the parent gets them too, and ends the workers
        signal.signal(number, signal.SIG_IGN)
    single_thread()
    made, attached = _made(line.recv_bytes()), shared.AttachedBlocks()
    while order := line.recv_bytes():
        try:
            if isinstance(made, Exception):
                raise made
            line.send_bytes(pickle.dumps(_carried_out(made, pickle.loads(order), attached, sizes)))
        except Exception as error:
            error.add_note(traceback.format_exc())
            line.send_bytes(_packed_error(error))
    os._exit(0)  # arrays still lie in blocks, which the interpreter would complain about


def _made(what: bytes) -> Executor | ConfigError:
    try:
        trainer, within = pickle.loads(what)
        executor: Executor = within(trainer)
        return executor
    except Exception as error:
        return ConfigError(
            f"a worker process could not rebuild the task: {error!r}; define its model, loss and "
            "accuracy in a module that can be imported, or use workers=1"
        )


def _carried_out(
    executor: Executor, order: PackedJobs, attached: shared.AttachedBlocks, sizes: shared.ModelSizes
) -> list[shared.UpdateHeader]:
    block = attached.block(order.results)
    starts = {name: attached.weights(name, sizes) for name in set(order.starts)}
    jobs = zip(order.jobs, order.starts, strict=True)
    work = [(Job(*values), starts[name]) for values, name in jobs]
    headers: list[shared.UpdateHeader] = []
    # An executor that trains one by one is given one job at a time, so that a crash names its task.
    groups = [work] if executor.appetite > 1 else [[one] for one in work]
    for group in groups:
        shared.note_task(block, group[0][0].task if len(group) == 1 else shared.IDLE)
        for update in executor.train(group):
            headers.append(shared.write_update(block, len(headers), sizes, update))
    return headers


def _packed_error(error: Exception) -> bytes:
    try:
        what = pickle.dumps(error)
        pickle.loads(what)  # an error whose arguments are not its message's cannot be read
    except Exception:
        what = pickle.dumps(FedpaceError(f"a worker process failed: {error!r}"))
    return what
