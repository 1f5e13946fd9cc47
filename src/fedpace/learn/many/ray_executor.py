"""Workers of a Ray cluster, on this machine or on many, that train jobs; results are the same bits.

What a round has in common lies in Ray's object store: the task once a machine, weights once a version.
Machines may come and go: what a lost worker was at is trained again by another.
"""

import warnings
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.learn.many.executor import (
    Executor,
    InlineExecutor,
    Jobs,
    SerialExecutor,
    chunks_of,
    single_thread,
)
from fedpace.learn.many.ray_cluster import open_cluster
from fedpace.learn.model.arrays import Arrays, arrays_to_update, update_to_arrays, weights_to_arrays
from fedpace.learn.model.weights import Update, Weights
from fedpace.learn.train.trainer import Job, Trainer

_TRIES = 3
"""Workers that jobs may lose; after that they are taken for the reason."""

_PATIENCE_S = 120.0
"""Seconds without a single worker until the run gives up."""


@dataclass(slots=True, eq=False)
class _Chunk:
    """Jobs that one worker trains, by their numbers. lost: workers that were lost with them."""

    numbers: list[int]
    lost: int = 0


class RayExecutor(InlineExecutor):
    """Trains in `workers` actors of one thread each, which need a core, and a GPU if they use one.

    The cluster is that of RAY_ADDRESS, or one on this machine that ends with the run. One that finds no
    place yet is waited for while others train; one that is lost is replaced, here or elsewhere.
    within: makes the executor of each actor.
    """

    def __init__(
        self, trainer: Trainer, workers: int, within: Callable[[Trainer], Executor] = SerialExecutor
    ) -> None:
        if workers < 1:
            raise ConfigError(f"workers is {workers}; set it to 1 or more")
        if trainer.device not in ("cpu", "cuda"):
            raise ConfigError(
                f"device is {trainer.device}, but a worker of a cluster has a GPU of its own; use cuda"
            )
        self._each, self._count = within(trainer).appetite, workers
        self._ray, self._started = open_cluster(workers)
        ray = self._ray
        self._gpus = 0 if trainer.device == "cpu" else 1
        self._kind = ray.remote(num_cpus=1, num_gpus=self._gpus)(_Actor)
        self._starting: dict[Any, Any] = {}
        """Workers that are not there yet, by what says that they are."""
        self._vain = 0
        """Workers in a row that were lost before they were there."""
        self._free: list[Any] = []
        self._busy: dict[Any, tuple[Any, _Chunk]] = {}
        try:
            self._packed = ray.put((trainer, within))
            for _ in range(workers):
                self._start_worker()
        except Exception as error:  # what pickling makes of a model that is no module's
            self.close()
            raise ConfigError(
                f"the task cannot be sent to a cluster: {error}; define its model, loss and accuracy "
                "at module level, in a module that its machines have"
            ) from error

    @property
    def appetite(self) -> int:
        return self._count * self._each

    def train(self, jobs: Jobs) -> list[Update]:
        if not jobs:
            return []
        starts = {id(one): one for _, one in jobs}
        stored = {key: self._ray.put(weights_to_arrays(one)) for key, one in starts.items()}
        # By the workers that were asked for, whoever is there: stacks must not depend on it.
        chunks = chunks_of([job for job, _ in jobs], self._count, self.appetite)
        waiting = deque(_Chunk(chunk) for chunk in chunks)
        found: dict[int, Update] = {}
        try:
            while waiting or self._busy:
                while waiting and self._free:
                    self._send(self._free.pop(), waiting.popleft(), jobs, stored)
                for ready in self._next(bool(waiting)):
                    if ready in self._starting:
                        self._welcome(ready)
                        continue
                    chunk, updates = self._taken(ready, jobs)
                    if updates is None:
                        waiting.appendleft(chunk)
                    else:
                        found |= zip(chunk.numbers, updates, strict=True)
        finally:  # where something went wrong, nobody waits for what others are at
            self._free += [actor for actor, _ in self._busy.values()]
            self._busy.clear()
        return [found[number] for number in range(len(jobs))]

    def close(self) -> None:
        """End the actors, and the cluster where it was started for them."""
        actors = [*self._free, *self._starting.values(), *(actor for actor, _ in self._busy.values())]
        for actor in actors:
            self._ray.kill(actor)
        self._free, self._starting, self._busy = [], {}, {}
        if self._started:
            self._ray.shutdown()

    def _start_worker(self) -> None:
        actor = self._kind.remote(self._packed)
        self._starting[actor.ready.remote()] = actor

    def _replace(self, lost: Any) -> None:
        """Start a worker in place of a lost one; idle ones may be gone, too, and must answer first."""
        self._ray.kill(lost)
        self._start_worker()
        self._starting |= {actor.ready.remote(): actor for actor in self._free}
        self._free = []

    def _send(self, actor: Any, chunk: _Chunk, jobs: Jobs, stored: dict[int, Any]) -> None:
        keys = list(dict.fromkeys(id(jobs[i][1]) for i in chunk.numbers))
        order = [(jobs[i][0], keys.index(id(jobs[i][1]))) for i in chunk.numbers]
        answer = actor.train.remote(order, *(stored[key] for key in keys))
        self._busy[answer] = actor, chunk

    def _next(self, more: bool) -> list[Any]:
        """Wait for an answer, or for a worker where there is more to train than workers are at."""
        watched = [*self._busy, *(self._starting if more else ())]
        limit = None if self._busy else _PATIENCE_S
        ready: list[Any] = self._ray.wait(watched, timeout=limit)[0]
        if not ready:
            there, each = self._ray.cluster_resources(), f"a core{' and a GPU' if self._gpus else ''}"
            raise FedpaceError(
                f"no worker found a place in {_PATIENCE_S:.0f} s: each needs {each}, the cluster has "
                f"{there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs, some of them taken; "
                "free some of them, or add a machine (ray start --address=HEAD:6379)"
            )
        return ready

    def _welcome(self, ready: Any) -> None:
        """Take a worker that has started; another is started in place of one that was lost."""
        actor = self._starting.pop(ready)
        try:
            self._ray.get(ready)
        except self._ray.exceptions.RayActorError as error:
            if error.actor_init_failed:
                reason = str(error).strip().rpartition("\n")[2]
                raise ConfigError(
                    f"a Ray worker could not rebuild the task: {reason}; its machines need fedpace "
                    "and the module that defines the task"
                ) from error
            self._vain += 1
            if self._vain > _TRIES * self._count:
                raise FedpaceError(
                    f"{self._vain} Ray workers were lost before they had trained: {_reason(error)}"
                ) from error
            self._replace(actor)
            return
        self._vain = 0
        self._free.append(actor)

    def _taken(self, ready: Any, jobs: Jobs) -> tuple[_Chunk, list[Update] | None]:
        """A chunk and its updates; None where they were lost with their worker or its machine."""
        errors, (actor, chunk) = self._ray.exceptions, self._busy.pop(ready)
        try:
            answer: list[Arrays] | Exception = self._ray.get(ready)
        except errors.RayError as error:
            tasks = sorted(jobs[i][0].task for i in chunk.numbers)
            reason = _reason(error)
            chunk.lost += 1
            lost = (errors.RayActorError, errors.ObjectLostError, errors.WorkerCrashedError)
            if not isinstance(error, (*lost, errors.NodeDiedError)):
                raise FedpaceError(
                    f"the Ray worker that trained tasks {tasks} failed: {reason}"
                ) from error
            if chunk.lost == _TRIES:
                raise FedpaceError(
                    f"{_TRIES} Ray workers that trained tasks {tasks} were lost: {reason}"
                ) from error
            warnings.warn(
                f"a Ray worker was lost, and {len(tasks)} tasks are trained again: {reason}",
                stacklevel=2,
            )
            self._replace(actor)
            return chunk, None
        self._free.append(actor)
        if isinstance(answer, Exception):
            raise answer
        return chunk, [arrays_to_update(one) for one in answer]


def _reason(error: Exception) -> str:
    """What Ray says in a line; the details of a lost actor come below a heading of theirs."""
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("\t")]
    return " ".join(lines[:2])


class _Actor:
    """The executor inside a worker of the cluster."""

    def __init__(self, packed: tuple[Trainer, Callable[[Trainer], Executor]]) -> None:
        warnings.filterwarnings("ignore", message=".*not writable")  # nothing writes to what is stored
        single_thread()
        trainer, within = packed
        self._executor = within(trainer)

    def ready(self) -> None:
        """Answer, once it is there."""

    def train(self, order: list[tuple[Job, int]], *stored: Arrays) -> list[Arrays] | FedpaceError:
        vectors = [{kind: torch.from_numpy(one) for kind, one in arrays.items()} for arrays in stored]
        starts = [Weights(**one) for one in vectors]
        try:
            updates = self._executor.train([(job, starts[place]) for job, place in order])
        except FedpaceError as error:
            return error
        return [update_to_arrays(update) for update in updates]
