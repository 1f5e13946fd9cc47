"""Who trains: this process, or several of its own that end with it. The results are the same bits."""

import os
import pickle
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from multiprocessing.shared_memory import SharedMemory
from typing import Protocol, Self

import torch

from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.core.process import end_with_parent
from fedpace.learn import shared
from fedpace.learn.shared import Attached, Blocks, Shelf, Sizes, Told
from fedpace.learn.train import Job, Trainer
from fedpace.learn.weights import Update, Weights

_CHUNKS_A_WORKER = 4


def single_thread() -> None:
    """Make torch use one thread in this process: sums depend on how they are split up."""
    torch.set_num_threads(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """`single_thread` for a while; the caller gets its threads back."""
    before = torch.get_num_threads()
    single_thread()
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Executor(Protocol):
    """Trains jobs, each from its own weights; updates come back in the order of the jobs.

    appetite: number of jobs below which it cannot use all that it has.
    """

    @property
    def appetite(self) -> int: ...
    def train(self, jobs: Sequence[tuple[Job, Weights]]) -> list[Update]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *failure: object) -> None: ...


class Serial:
    """Trains one job after the other in this process; updates stay on the trainer's device."""

    appetite = 1

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer

    def train(self, jobs: Sequence[tuple[Job, Weights]]) -> list[Update]:
        return [self._trainer.run(job, weights) for job, weights in jobs]

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


@dataclass(slots=True)
class _Worker:
    """A process; results: where it puts updates; chunk: places of the jobs that it is at."""

    process: BaseProcess
    line: Connection
    results: SharedMemory | None = None
    room: int = 0
    chunk: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Order:
    """Jobs, each with the block of the weights that it starts from, and the block for updates."""

    jobs: list[tuple[Job, str]]
    results: str


class Processes:
    """Trains in `workers` processes of one thread each; they start with the first jobs.

    The task's arrays, weights and updates lie in shared memory: nothing is copied for a task but its
    update, once. Weights and updates go through the CPU, whatever device trains.
    within: makes the executor of each process.
    """

    def __init__(
        self, trainer: Trainer, workers: int, within: Callable[[Trainer], Executor] = Serial
    ) -> None:
        if workers < 1:
            raise ConfigError(f"workers is {workers}; set it to 1 or more")
        end = trainer.layout.start(0)
        self._sizes = Sizes(end.counters, end.params, end.buffers)
        self._blocks = Blocks()
        self._shelf = Shelf(self._blocks, self._sizes)
        try:
            self._packed = self._blocks.packed((trainer, within))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            self._blocks.close()
            raise ConfigError(
                f"the task cannot be sent to worker processes: {error}; define its model, loss and "
                "accuracy at module level, not as lambdas or inside functions, or use workers=1"
            ) from error
        self._count, self._each = workers, within(trainer).appetite
        self._workers: list[_Worker] = []

    @property
    def appetite(self) -> int:
        return self._count * self._each

    def train(self, jobs: Sequence[tuple[Job, Weights]]) -> list[Update]:
        if not jobs:
            return []
        chunks = chunks_of([job for job, _ in jobs], self._count, self.appetite)
        names = self._shelf.put([weights for _, weights in jobs])
        found: dict[int, Update] = {}
        failure: Exception | None = None
        waiting, workers = deque(chunks), self._started()
        try:
            while True:
                for worker in workers:
                    if waiting and not worker.chunk and failure is None:
                        worker.chunk = waiting.popleft()
                        self._send(worker, [(jobs[i][0], names[id(jobs[i][1])]) for i in worker.chunk])
                busy = [worker for worker in workers if worker.chunk]
                if not busy:
                    break
                ready = wait([worker.line for worker in busy])
                for worker in (one for one in busy if one.line in ready):
                    answer = self._answer(worker, jobs)
                    if isinstance(answer, Exception):
                        failure = failure or answer  # the others' answers are still to be taken
                    else:
                        found |= dict(zip(worker.chunk, answer, strict=True))
                    worker.chunk = []
        except BaseException:
            self._end()  # some are at jobs whose answers nobody will take
            raise
        if failure is not None:
            raise failure
        return [found[number] for number in range(len(jobs))]

    def close(self) -> None:
        """End the processes, after the jobs they are at."""
        for worker in self._workers:
            try:
                worker.line.send_bytes(b"")
            except OSError:  # it has ended already
                continue
        for worker in self._workers:
            worker.process.join()
        self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _started(self) -> list[_Worker]:
        spawn = get_context("spawn")
        while len(self._workers) < self._count:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=_work, args=(theirs, self._sizes), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))
            try:
                ours.send_bytes(self._packed)
            except OSError:  # told by the answer that never comes
                continue
        return self._workers

    def _send(self, worker: _Worker, jobs: list[tuple[Job, str]]) -> None:
        if worker.results is None or worker.room < len(jobs):
            if worker.results is not None:
                self._blocks.drop(worker.results)
            worker.room = max(len(jobs), 2 * worker.room)
            worker.results = self._blocks.new(shared.results_bytes(self._sizes, worker.room))
        shared.note_task(worker.results, shared.IDLE)
        try:
            worker.line.send_bytes(pickle.dumps(_Order(jobs, worker.results.name)))
        except OSError:  # told by the answer that never comes
            return

    def _answer(self, worker: _Worker, jobs: Sequence[tuple[Job, Weights]]) -> list[Update] | Exception:
        """What a worker's chunk came to; raises where there is no worker any more."""
        try:
            answer: list[Told] | Exception = worker.line.recv()
        except (EOFError, OSError) as error:
            worker.process.join()
            at = shared.IDLE if worker.results is None else shared.noted_task(worker.results)
            tasks = sorted(jobs[i][0].task for i in worker.chunk)
            which = f"task {at}" if at != shared.IDLE else f"tasks {tasks}"
            raise FedpaceError(
                f"the worker process that trained {which} ended abruptly, with exit code "
                f"{worker.process.exitcode}. Use fewer workers if memory ran out; a script must keep "
                "its run under `if __name__ == '__main__':`"
            ) from error
        if isinstance(answer, Exception) or worker.results is None:
            return answer if isinstance(answer, Exception) else FedpaceError("there are no results")
        return [
            shared.read_update(worker.results, number, self._sizes, told)
            for number, told in enumerate(answer)
        ]

    def _end(self) -> None:
        for worker in self._workers:
            worker.process.terminate()
            worker.process.join()
            worker.process.close()
            worker.line.close()
        self._workers = []
        self._blocks.close()


def chunks_of(jobs: Sequence[Job], workers: int, appetite: int) -> list[list[int]]:
    """Indices of jobs in groups of about equal steps, the longest group first.

    Several for each worker, so that none waits long for another, but each of two fills at least.
    """
    fills = len(jobs) // (2 * appetite) if appetite > workers else -(-len(jobs) // appetite)
    most = workers * min(max(fills, 1), _CHUNKS_A_WORKER)
    groups: list[list[int]] = [[] for _ in range(min(most, len(jobs)))]
    loads = [0] * len(groups)
    for index in sorted(range(len(jobs)), key=lambda i: -jobs[i].steps):
        lightest = loads.index(min(loads))
        groups[lightest].append(index)
        loads[lightest] += jobs[index].steps
    order = sorted(range(len(groups)), key=lambda g: -loads[g])
    return [groups[g] for g in order]


# What follows runs in the workers.


def _work(line: Connection, sizes: Sizes) -> None:
    """Carry out orders until there are no more."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends the workers
    single_thread()
    made, attached = _made(line.recv_bytes()), Attached()
    while packed := line.recv_bytes():
        try:
            if isinstance(made, Exception):
                raise made
            _reply(line, _carried_out(made, pickle.loads(packed), attached, sizes))
        except Exception as error:
            error.add_note(traceback.format_exc())
            _reply(line, error)
    os._exit(0)  # arrays still lie in blocks, which the interpreter would complain about


def _made(packed: bytes) -> Executor | ConfigError:
    try:
        trainer, within = pickle.loads(packed)
        executor: Executor = within(trainer)
        return executor
    except Exception as error:
        return ConfigError(
            f"a worker process could not rebuild the task: {error!r}; define its model, loss and "
            "accuracy in a module that can be imported, or use workers=1"
        )


def _carried_out(executor: Executor, order: _Order, attached: Attached, sizes: Sizes) -> list[Told]:
    block = attached.block(order.results)
    starts = {name: attached.weights(name, sizes) for _, name in order.jobs}
    work = [(job, starts[name]) for job, name in order.jobs]
    told: list[Told] = []
    # An executor that trains one by one is given one job at a time, so that a crash names its task.
    groups = [work] if executor.appetite > 1 else [[one] for one in work]
    for group in groups:
        shared.note_task(block, group[0][0].task if len(group) == 1 else shared.IDLE)
        for update in executor.train(group):
            told.append(shared.write_update(block, len(told), sizes, update))
    return told


def _reply(line: Connection, answer: "list[Told] | Exception") -> None:
    try:
        packed = pickle.dumps(answer)
        pickle.loads(packed)  # an error whose arguments are not its message's cannot be read
    except Exception:
        packed = pickle.dumps(FedpaceError(f"a worker process failed: {answer!r}"))
    line.send_bytes(packed)
