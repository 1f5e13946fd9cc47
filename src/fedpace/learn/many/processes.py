"""Worker processes that train jobs and end with this process; results are the same bits."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory

from fedpace.core.children.packing import without_main
from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.learn.many import shared_memory as shared
from fedpace.learn.many.executor import (
    Executor,
    JobBatch,
    Jobs,
    SerialExecutor,
    answers_of,
    chunks_by_need,
    chunks_of,
)
from fedpace.learn.many.worker import packed, work
from fedpace.learn.model.weights import Update
from fedpace.learn.train.trainer import Trainer

_JOBS_AHEAD = 512
"""Most jobs of a worker with several orders: orders and answers must fit into the pipe."""


@dataclass(frozen=True, slots=True)
class _Order:
    """A batch that a worker has been told to train, and where its updates will lie."""

    batch: JobBatch
    results: SharedMemory


@dataclass(slots=True)
class _Worker:
    """A process and its orders, the one that it is at first."""

    process: BaseProcess
    line: Connection
    orders: deque[_Order] = field(default_factory=deque)

    @property
    def jobs(self) -> int:
        return sum(len(order.batch.jobs) for order in self.orders)


class ProcessExecutor(Executor):
    """Trains in `workers` processes of one thread each; they start with the first jobs.

    The task's arrays, weights and updates lie in shared memory: nothing is copied for a task but its
    update, once. Weights and updates go through the CPU, whatever device trains.
    within: makes the executor of each process.
    """

    def __init__(
        self, trainer: Trainer, workers: int, within: Callable[[Trainer], Executor] = SerialExecutor
    ) -> None:
        if workers < 1:
            raise ConfigError(f"workers is {workers}; set it to 1 or more")
        end = trainer.layout.start(0)
        self._sizes = shared.ModelSizes(end.counters, end.params, end.buffers)
        self._blocks = shared.SharedBlocks()
        self._weights = shared.WeightCache(self._blocks, self._sizes)
        self._results = shared.ResultBuffers(self._blocks, self._sizes)
        try:
            self._packed = self._blocks.packed((trainer, within), "the task", "workers=1")
        except FedpaceError:
            self._blocks.close()
            raise
        one = within(trainer)
        self._count, self._each, self._divisible = workers, one.appetite, one.divisible
        self._workers: list[_Worker] = []
        self._queue: deque[JobBatch] = deque()

    @property
    def appetite(self) -> int:
        return self._count * self._each

    def begin(self, needed: Jobs, others: Jobs) -> list[JobBatch]:
        if others:
            chunks = chunks_by_need(len(needed), len(others), self._count, self._divisible)
        else:
            chunks = chunks_of([job for job, _ in needed], self._count, self.appetite)
        jobs = [*needed, *others]
        batches = [JobBatch([jobs[place] for place in chunk], chunk) for chunk in chunks]
        self._queue.extend(batches)
        with self._ended_if_broken_off():
            self._hand_out(1)
        return batches

    def finish(self, batches: Sequence[JobBatch]) -> list[list[Update]]:
        with self._ended_if_broken_off():
            while not _known(batches):
                self._hand_out(1)
                self._listen()
            for one in set(batches) & set(self._queue):  # where another one has failed
                self._queue.remove(one)
            self._hand_out(2)  # for the time that the caller is away
        return answers_of(batches)

    def close(self) -> None:
        """End the processes; what they are at is wanted no more."""
        idle = [worker for worker in self._workers if not worker.orders]
        for worker in idle:
            try:
                worker.line.send_bytes(b"")
            except OSError:  # it has ended already
                continue
        for worker in idle:
            worker.process.join()
        self._end()

    @contextmanager
    def _ended_if_broken_off(self) -> Iterator[None]:
        """End workers that are at jobs whose answers nobody will take."""
        try:
            yield
        except BaseException:
            self._end()
            raise

    def _hand_out(self, most: int) -> None:
        """Give batches that wait to workers that have fewer orders than `most`."""
        while self._queue:
            free = [worker for worker in self._started() if len(worker.orders) < most]
            worker = min(free, key=lambda one: one.jobs, default=None)
            if worker is None:
                return
            if worker.orders and worker.jobs + len(self._queue[0].jobs) > _JOBS_AHEAD:
                return
            self._send(worker, self._queue.popleft())

    def _listen(self) -> None:
        """Wait for an answer, and take all that are there."""
        busy = [worker for worker in self._workers if worker.orders]
        ready = wait([worker.line for worker in busy])
        for worker in (one for one in busy if one.line in ready):
            order = worker.orders[0]
            order.batch.answer = self._answer(worker, order)
            worker.orders.popleft()
            self._results.give_back(order.results)
            self._weights.give_back([weights for _, weights in order.batch.jobs])

    def _started(self) -> list[_Worker]:
        spawn = get_context("spawn")
        while len(self._workers) < self._count:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=work, args=(theirs, self._sizes), daemon=True)
            with without_main(hidden=not self._packed.needs_main):
                process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))
            try:
                ours.send_bytes(self._packed.data)
            except OSError:  # told by the answer that never comes
                continue
        return self._workers

    def _send(self, worker: _Worker, batch: JobBatch) -> None:
        results = self._results.take(len(batch.jobs))
        starts = self._weights.take([weights for _, weights in batch.jobs])
        worker.orders.append(_Order(batch, results))
        try:
            worker.line.send_bytes(packed([job for job, _ in batch.jobs], starts, results.name))
        except OSError:  # told by the answer that never comes
            return

    def _answer(self, worker: _Worker, order: _Order) -> list[Update] | Exception:
        """Updates or error of an order; raises where there is no worker any more."""
        try:
            answer: list[shared.UpdateHeader] | Exception = worker.line.recv()
        except (EOFError, OSError) as error:
            worker.process.join()
            at = shared.noted_task(order.results)
            which = f"task {at}" if at != shared.IDLE else f"tasks {sorted(order.batch.tasks)}"
            raise FedpaceError(
                f"the worker process that trained {which} ended abruptly, with exit code "
                f"{worker.process.exitcode}; use fewer workers if memory ran out"
            ) from error
        if isinstance(answer, Exception):
            return answer
        return [
            shared.read_update(order.results, number, self._sizes, header)
            for number, header in enumerate(answer)
        ]

    def _end(self) -> None:
        for worker in self._workers:
            worker.process.kill()  # it does not listen to what is meant for the whole group
            worker.process.join()
            worker.process.close()
            worker.line.close()
        self._workers = []
        self._queue.clear()
        self._blocks.close()


def _known(batches: Sequence[JobBatch]) -> bool:
    """Say whether all batches are done, or one has failed."""
    answers = [one.answer for one in batches]
    return None not in answers or any(isinstance(one, Exception) for one in answers)
