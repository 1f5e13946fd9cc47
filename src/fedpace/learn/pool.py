"""Who trains: this process, or several of its own that end with it. The results are the same bits."""

import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Protocol, Self

import numpy as np
import torch

from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.core.process import end_with_parent
from fedpace.learn.train import Job, Trainer
from fedpace.learn.weights import Estimates, Update, Weights

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]
"""params, buffers and counters on the wire; torch would pass tensors by file descriptors."""

Result = tuple[int, Arrays, float, float | None, Estimates | None, np.ndarray | None]
"""An update on the wire: depth, vectors, effort, width, estimates, gradient."""

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


class Processes:
    """Trains in `workers` processes of one thread each; they start with the first jobs.

    Weights and updates go through the CPU, whatever device trains.
    within: makes the executor of each process.
    """

    def __init__(
        self, trainer: Trainer, workers: int, within: Callable[[Trainer], Executor] = Serial
    ) -> None:
        if workers < 1:
            raise ConfigError(f"workers is {workers}; set it to 1 or more")
        try:
            packed = pickle.dumps((trainer, within))
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise ConfigError(
                f"the task cannot be sent to worker processes: {error}; define its model, loss and "
                "accuracy at module level, not as lambdas or inside functions, or use workers=1"
            ) from error
        self._workers = workers
        self._each = within(trainer).appetite
        self._pool = ProcessPoolExecutor(workers, get_context("spawn"), _start, (packed,))

    @property
    def appetite(self) -> int:
        return self._workers * self._each

    def train(self, jobs: Sequence[tuple[Job, Weights]]) -> list[Update]:
        fills = -(-len(jobs) // self.appetite)  # chunks should not get smaller than a worker can use
        chunks = _chunks([job for job, _ in jobs], self._workers * min(fills, _CHUNKS_A_WORKER))
        futures: list[Future[list[Result]]] = []
        results: list[Update | None] = [None] * len(jobs)
        done = 0
        try:
            futures.extend(
                self._pool.submit(_work, *_pack([jobs[i] for i in chunk])) for chunk in chunks
            )
            for chunk, future in zip(chunks, futures, strict=True):
                for index, result in zip(chunk, future.result(), strict=True):
                    results[index] = _update(*result)
                done += 1
        except BrokenProcessPool as error:
            tasks = sorted(jobs[i][0].task for chunk in chunks[done:] for i in chunk)
            raise FedpaceError(
                f"a worker process ended abruptly; tasks {tasks} were not finished. Use fewer workers "
                "if memory ran out; a script must keep its run under `if __name__ == '__main__':`"
            ) from error
        finally:
            for future in futures:
                future.cancel()
        return [update for update in results if update is not None]

    def close(self) -> None:
        """End the processes, after the jobs they are at."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def _chunks(jobs: Sequence[Job], most: int) -> list[list[int]]:
    """Indices of jobs in at most `most` groups of about equal steps, the longest group first."""
    groups: list[list[int]] = [[] for _ in range(min(most, len(jobs)))]
    loads = [0] * len(groups)
    for index in sorted(range(len(jobs)), key=lambda i: -jobs[i].steps):
        lightest = loads.index(min(loads))
        groups[lightest].append(index)
        loads[lightest] += jobs[index].steps
    order = sorted(range(len(groups)), key=lambda g: -loads[g])
    return [groups[g] for g in order]


def _pack(jobs: Sequence[tuple[Job, Weights]]) -> tuple[list[Arrays], list[tuple[Job, int]]]:
    """Distinct weights once, and for each job which of them it starts from."""
    places: dict[int, int] = {}
    arrays: list[Arrays] = []
    packed = []
    for job, weights in jobs:
        if id(weights) not in places:
            places[id(weights)] = len(arrays)
            arrays.append(_arrays(weights))
        packed.append((job, places[id(weights)]))
    return arrays, packed


def _arrays(numbers: Weights | Update) -> Arrays:
    params, buffers, counters = (
        one.cpu().numpy() for one in (numbers.params, numbers.buffers, numbers.counters)
    )
    return params, buffers, counters


def _update(
    depth: int,
    arrays: Arrays,
    effort: float,
    width: float | None,
    estimates: Estimates | None,
    slope: np.ndarray | None,
) -> Update:
    params, buffers, counters = map(torch.from_numpy, arrays)
    gradient = None if slope is None else torch.from_numpy(slope)
    return Update(depth, params, buffers, counters, effort, width, estimates, gradient)


# What follows runs in the workers. A worker keeps its executor here, because an initializer has no
# other way to hand it to the calls that come later; in the parent process it stays None.
_executor: Executor | ConfigError | None = None


def _start(packed: bytes) -> None:
    global _executor
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends the workers
    single_thread()
    try:
        trainer, within = pickle.loads(packed)
        _executor = within(trainer)
    except Exception as error:  # kept, since an initializer that raises only breaks the pool
        _executor = ConfigError(
            f"a worker process could not rebuild the task: {error!r}; define its model, loss and "
            "accuracy in a module that can be imported, or use workers=1"
        )


def _work(weights: list[Arrays], jobs: list[tuple[Job, int]]) -> list[Result]:
    if _executor is None or isinstance(_executor, ConfigError):
        raise _executor or FedpaceError("this process is no worker")
    starts = [Weights(*map(torch.from_numpy, arrays)) for arrays in weights]
    results = []
    for update in _executor.train([(job, starts[place]) for job, place in jobs]):
        slope = None if update.gradient is None else update.gradient.cpu().numpy()
        one = update.depth, _arrays(update), update.effort, update.width, update.estimates, slope
        results.append(one)
    return results
