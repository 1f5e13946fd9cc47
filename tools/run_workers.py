"""Processes that carry out runs of a study side by side, each one after the other.

They stay: imports, data and kernels are there from the second run on. They share a GPU as the runs of
`fedpace compare` do, under MPS and with memory in equal parts.
"""

import gc
import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Self

from unfinished_runs import UnfinishedRun

from fedpace.core.errors import StopRun
from fedpace.core.facts import Evaluated
from fedpace.core.host import end_with_parent
from fedpace.report.summary import Summary
from fedpace.runs import config as configs
from fedpace.runs.assembly import BuiltTasks
from fedpace.runs.comparison.gpu_sharing import share_gpu
from fedpace.runs.progress.hooks import Hooks
from fedpace.runs.simulate import simulate_run
from fedpace.runs.stopping import StoppedBySignal

Settings = dict[str, Any]
MACHINE_SEPARATOR = " and "
"""Stands between the machines of a run that went on elsewhere."""
Extract = Callable[[Summary], Settings]
"""What is kept of a run; a function at module level."""

LEFT = "left"
"""The first word of why a run ended that was too far behind in its race."""


@dataclass(frozen=True)
class RunOrder:
    """A run to carry out: its place in the results, and its config.

    settings: of its policy with all defaults, where results of other ones do not stand.
    race: runs of one race have the same; one that has not come to the first of `targets` in `patience`
    times the time in which another came to the last is left. Targets are of `metric`, by default the
    task's main one, easiest first.
    revision: of its policy (`Policy.revision`), where results of other ones do not stand either.
    """

    key: str
    seed: int
    config: Settings
    settings: Settings = field(default_factory=dict)
    race: str | None = None
    targets: tuple[float, ...] = ()
    metric: str | None = None
    revision: int = 0
    patience: float = 1.0

    def open_run(self, runs_folder: Path) -> UnfinishedRun:
        """What there is of this run in a folder of runs."""
        known = {"key": self.key, "seed": self.seed, "revision": self.revision, "config": self.config}
        known["settings"] = self.settings
        if self.patience != 1:
            known["patience"] = self.patience
        return UnfinishedRun(runs_folder / sum_of(known))


@dataclass
class RunWorker:
    """A process and what it is doing."""

    process: Any
    connection: Connection
    number: int = -1
    order: RunOrder | None = None
    began: float = 0.0


@dataclass
class RunWorkers:
    """Processes for runs; inside `with`. A process that dies takes one run along, and is replaced.

    runs_folder: for what there is of the runs under way; None: killed ones are lost.
    """

    count: int
    device: str
    extract: Extract
    runs_folder: Path | None = None
    _workers: list[RunWorker] = field(default_factory=list)
    _number: int = 0

    def __enter__(self) -> Self:
        self._sharing = share_gpu(self.device, self.count)
        self._share = self._sharing.__enter__()
        self._workers = [self._start() for _ in range(self.count)]
        return self

    def __exit__(self, *failure: object) -> None:
        for worker in self._workers:
            if worker.order is None and worker.process.is_alive():
                worker.connection.send(None)
            elif worker.process.is_alive():
                worker.process.terminate()  # all at once: those in folders save where they are
        until = time.monotonic() + (5 if self.runs_folder is None else 20)
        for worker in self._workers:
            if worker.order is None or self.runs_folder is not None:
                worker.process.join(max(until - time.monotonic(), 0))
            _end(worker)
        self._sharing.__exit__(None, None, None)

    @property
    def free(self) -> int:
        """How many of them have nothing to do."""
        return sum(worker.order is None for worker in self._workers)

    @property
    def under_way(self) -> list[RunOrder]:
        """The runs that are being carried out."""
        return [worker.order for worker in self._workers if worker.order is not None]

    def begin(self, order: RunOrder, limit: float | None) -> None:
        """Let a free one begin a run. limit: when it is left, if it is at no target then."""
        worker = next(one for one in self._workers if one.order is None)
        self._number += 1
        worker.number, worker.order, worker.began = self._number, order, time.monotonic()
        worker.connection.send(("run", self._number, order, limit))

    def limit(self, race: str, limit: float) -> None:
        """Tell those of a race when they are left, if they are at no target then."""
        for worker in self._workers:
            if worker.order is not None and worker.order.race == race:
                worker.connection.send(("limit", worker.number, limit))

    def ended(self, timeout_s: float) -> Iterator[tuple[RunOrder, Settings]]:
        """Runs that have ended since, with what came out or what went wrong; waits for the first."""
        busy = {worker.connection: worker for worker in self._workers if worker.order is not None}
        for ready in wait(list(busy), timeout_s):
            worker = busy[ready]  # type: ignore[index]
            order, spent = worker.order, time.monotonic() - worker.began
            assert order is not None
            try:
                found = worker.connection.recv()
            except (EOFError, OSError):
                worker.process.join(5)
                found = {"error": f"its process ended with {worker.process.exitcode}"}
            worker.order = None
            if "error" in found:  # a GPU's context may be broken for good, and with it all that follow
                _end(worker)
                self._workers[self._workers.index(worker)] = self._start()
            spent += found.pop("spent_s", 0.0)
            yield order, found | {"seconds": round(spent, 1)}
            if self.runs_folder is not None and "error" not in found:
                order.open_run(self.runs_folder).delete()  # its result has been kept meanwhile

    def _start(self) -> RunWorker:
        spawn = get_context("spawn")
        here, there = spawn.Pipe()
        env = dict(self._share.env)
        if self.device == "cpu" and self.count > 1:
            env["OMP_NUM_THREADS"] = "1"  # each has a core; read when torch is imported
        given = (there, env, self._share.room, self.device, self.extract, self.runs_folder)
        process = spawn.Process(target=_work, args=given, daemon=True)
        process.start()
        there.close()
        return RunWorker(process, here)


def _end(worker: RunWorker) -> None:
    """End a process; one that does not listen is killed."""
    if worker.process.is_alive():
        worker.process.terminate()
        worker.process.join(3)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join(3)
    worker.connection.close()


def was_left(run: Settings) -> bool:
    """Tell if a run ended since it was too far behind in its race."""
    return str(run.get("finished", "")).startswith(f"stopped by a hook: {LEFT}")


def sum_of(config: Settings) -> str:
    """A sum of a config, by which its results are known again."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]


# What follows runs in the processes.


def _work(
    parent: Connection,
    env: dict[str, str],
    room: int | None,
    device: str,
    extract: Extract,
    runs_folder: Path | None,
) -> None:
    os.environ.update(env)
    end_with_parent()
    # Ctrl-C reaches the parent, too, which ends all; two signals would end a run before it is saved.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks, machine = BuiltTasks(), _machine(device)
    while True:
        try:
            message = parent.recv()
        except EOFError:
            return
        if message is None:
            return
        if message[0] != "run":
            continue  # the limit of a run that has just ended
        _, number, order, limit = message
        try:
            race, config = _Race(parent, number, order, limit), configs.load(order.config)
            given: Settings = {"device": device, "room": room, "tasks": tasks}
            if runs_folder is None:
                summary = simulate_run(config, hooks=race.hooks(), **given).summary
                found = extract(summary) | {"machine": machine}
            else:
                run = order.open_run(runs_folder)
                found = extract(run.carry_out(config, machine, race.hooks, **given))
                found |= {"spent_s": run.spent_s, "machine": MACHINE_SEPARATOR.join(run.machines)}
        except StoppedBySignal:  # its folder has where it stands
            return
        except Exception as error:  # kept with the results, so that the other runs go on
            found = {"error": f"{type(error).__name__}: {error}"}
        parent.send(found)
        _free_memory(device)


def _free_memory(device: str) -> None:
    """Give back what the last run had of a GPU; others share it."""
    gc.collect()
    if device != "cpu":
        import torch

        torch.cuda.empty_cache()


def _machine(device: str) -> str:
    """What runs are carried out by, in words."""
    if device == "cpu":
        with suppress(PackageNotFoundError):
            # Without its import, which runs may not need.
            return f"CPU, torch {version('torch').partition('+')[0]}"
        return "CPU"
    import torch

    return f"{torch.cuda.get_device_name(device)}, torch {torch.__version__.partition('+')[0]}"


@dataclass
class _Race:
    """Leaves a run that is at no target by its limit, after another one has come to the last."""

    parent: Connection
    number: int
    order: RunOrder
    limit: float | None
    arrived: bool = False

    def hooks(self) -> Hooks | None:
        """Hooks of a run that tells its tests from the first one on; None: it is in no race."""
        self.arrived = False
        return Hooks(on_evaluate=self.test) if self.order.race else None

    def test(self, fact: Evaluated) -> None:
        while self.parent.poll():
            _, number, limit = self.parent.recv()
            if number == self.number:
                self.limit = limit
        first, last = self.order.targets[0], self.order.targets[-1]
        metric = self.order.metric or next(iter(fact.metrics), "")
        value, sign = fact.metrics.get(metric), 1 if last >= first else -1
        self.arrived |= value is not None and sign * value >= sign * first
        if self.limit is not None and not self.arrived and fact.at > self.limit:
            raise StopRun(f"{LEFT}: another setting was at the highest target, this not at the lowest")
