"""Workers of a Ray cluster, on this machine or on many, that train jobs; results are the same bits.

What a round has in common lies in Ray's object store: the task once a machine, weights once a version.
"""

import os
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from fedpace.core.errors import ConfigError, FedpaceError, needs_extra
from fedpace.learn.many.executor import (
    Executor,
    InlineExecutor,
    Jobs,
    SerialExecutor,
    chunks_of,
    single_thread,
)
from fedpace.learn.model.arrays import Arrays, arrays_to_update, update_to_arrays, weights_to_arrays
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.train.trainer import Job, Trainer


class RayExecutor(InlineExecutor):
    """Trains in `workers` actors of one thread each, which need a core, and a GPU if they use one.

    The cluster is that of RAY_ADDRESS, or one on this machine that ends with the run.
    within: makes the executor of each actor.
    """

    def __init__(
        self, trainer: Trainer, workers: int, within: Callable[[Trainer], Executor] = SerialExecutor
    ) -> None:
        if workers < 1:
            raise ConfigError(f"workers is {workers}; set it to 1 or more")
        with needs_extra("ray"):
            self._ray = ray = import_module("ray")
        self._each = within(trainer).appetite
        self._started = not ray.is_initialized()
        if self._started:
            local = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": workers}
            ray.init(include_dashboard=False, log_to_driver=False, **local)
        gpus = 0 if trainer.device == "cpu" else 1
        actor = ray.remote(num_cpus=1, num_gpus=gpus)(_Actor)
        try:
            packed = ray.put((trainer, within))
            self._actors = [actor.remote(packed) for _ in range(workers)]
        except Exception as error:  # what pickling makes of a model that is no module's
            self.close()
            raise ConfigError(
                f"the task cannot be sent to a cluster: {error}; define its model, loss and accuracy "
                "at module level, in a module that its machines have"
            ) from error

    @property
    def appetite(self) -> int:
        return len(self._actors) * self._each

    def train(self, jobs: Jobs) -> list[Update]:
        if not jobs:
            return []
        ray, workers = self._ray, len(self._actors)
        starts = {id(one): one for _, one in jobs}
        stored = {key: ray.put(weights_to_arrays(one)) for key, one in starts.items()}
        waiting = chunks_of([job for job, _ in jobs], workers, self.appetite)[::-1]
        busy: dict[Any, tuple[Any, list[int]]] = {}
        free = list(self._actors)
        found: dict[int, Update] = {}
        while waiting or busy:
            while waiting and free:
                actor, chunk = free.pop(), waiting.pop()
                keys = list(dict.fromkeys(id(jobs[i][1]) for i in chunk))
                order = [(jobs[i][0], keys.index(id(jobs[i][1]))) for i in chunk]
                answer = actor.train.remote(order, *(stored[key] for key in keys))
                busy[answer] = actor, chunk
            (ready, *_), _ = ray.wait(list(busy))
            actor, chunk = busy.pop(ready)
            free.append(actor)
            for number, update in zip(chunk, self._taken(ready, jobs, chunk), strict=True):
                found[number] = update
        return [found[number] for number in range(len(jobs))]

    def close(self) -> None:
        """End the actors, and the cluster where it was started for them."""
        for actor in getattr(self, "_actors", ()):
            self._ray.kill(actor)
        self._actors = []
        if self._started:
            self._ray.shutdown()

    def _taken(self, ready: Any, jobs: Jobs, chunk: list[int]) -> list[Update]:
        try:
            answer: list[Arrays] | Exception = self._ray.get(ready)
        except self._ray.exceptions.RayError as error:
            tasks = sorted(jobs[i][0].task for i in chunk)
            reason = str(error).strip().partition("\n")[0]
            raise FedpaceError(f"the Ray worker that trained tasks {tasks} failed: {reason}") from error
        if isinstance(answer, Exception):
            raise answer
        return [arrays_to_update(one) for one in answer]


class _Actor:
    """The executor inside a worker of the cluster."""

    def __init__(self, packed: tuple[Trainer, Callable[[Trainer], Executor]]) -> None:
        warnings.filterwarnings("ignore", message=".*not writable")  # nothing writes to what is stored
        single_thread()
        trainer, within = packed
        self._executor = within(trainer)

    def train(self, order: list[tuple[Job, int]], *stored: Arrays) -> list[Arrays] | FedpaceError:
        vectors = [{kind: torch.from_numpy(one) for kind, one in arrays.items()} for arrays in stored]
        starts = [Weights(**one) for one in vectors]
        try:
            updates = self._executor.train([(job, starts[place]) for job, place in order])
        except FedpaceError as error:
            return error
        return [update_to_arrays(update) for update in updates]
