"""Processes that carry out runs side by side, each one after the other."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any, Protocol, Self

from fedpace.core.errors import FedpaceError
from fedpace.core.host import end_with_parent
from fedpace.core.run import MetricScore, Standing
from fedpace.learn.phases import PhaseClock
from fedpace.remote.reports import RunStopped
from fedpace.report.summary import Summary
from fedpace.runs.assembly import BuiltTasks
from fedpace.runs.comparison.estimate import ProbedRun, RunProbe
from fedpace.runs.comparison.gpu_sharing import GpuShare, share_gpu
from fedpace.runs.config import Config, policy_plan
from fedpace.runs.simulate import simulate_run
from fedpace.runs.stopping import SIGNALS


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a comparison."""

    label: str
    seed: int
    folder: Path


RunCall = tuple[int, Config, Entry, str, bool, bool, float | None]
"""Arguments of `carry_out`."""


class RunPool(Protocol):
    """Whoever carries out runs. stop: let those under way save themselves and end, and none begin."""

    def submit(self, call: RunCall) -> "Future[ProbedRun | None]": ...
    def standings(self) -> Iterator[tuple[int, Standing]]: ...
    def stop(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *failure: object) -> None: ...


class WorkerPool:
    """Processes that each carry out one run after the other; one that is killed takes no other along.

    A pool of several processes breaks as a whole, and a process that is killed may hold a lock for
    ever: so every thread here has a pool of a single process, which has its own ties to this one.
    device: which they share, while the pool is entered.
    """

    def __init__(self, count: int, device: str = "cpu") -> None:
        self._count, self._device, self._began = count, device, perf_counter()
        self._sharing, self._share = ExitStack(), GpuShare()
        self._spawn = multiprocessing.get_context("spawn")
        self._threads = ThreadPoolExecutor(count, "fedpace-compare")
        self._own = threading.local()
        self._workers: list[tuple[ProcessPoolExecutor, ParentLink]] = []

    def submit(self, call: RunCall) -> "Future[ProbedRun | None]":
        return self._threads.submit(self._run, call)

    def standings(self) -> Iterator[tuple[int, Standing]]:
        """What the workers have told since the last time."""
        for _, link in tuple(self._workers):
            while not link.standings.empty():
                yield link.standings.get()

    def stop(self) -> None:
        """Let every run under way save itself and end, and none begin."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for _, link in tuple(self._workers):
            link.stop.set()

    def _run(self, call: RunCall) -> ProbedRun | None:
        process: ProcessPoolExecutor | None = getattr(self._own, "process", None)
        if process is None:
            told, stop = self._spawn.SimpleQueue(), self._spawn.Event()
            link = ParentLink(told, stop, self._share.room, perf_counter() - self._began)
            env = dict(self._share.env)
            process = ProcessPoolExecutor(1, self._spawn, _start_worker, (link, env))
            self._own.process = process
            self._workers.append((process, link))
        try:
            return process.submit(carry_out, *call).result()
        except BrokenProcessPool:
            self._own.process = None
            raise

    def __enter__(self) -> Self:
        self._share = self._sharing.enter_context(share_gpu(self._device, self._count))
        return self

    def __exit__(self, *_: object) -> None:
        with self._sharing:
            self.stop()
            self._threads.shutdown()
            for process, _link in self._workers:
                process.shutdown()


# What follows runs in the workers.


@dataclass
class ParentLink:
    """A worker's ties to its parent: a queue for where runs stand, and an event that stops them.

    room: bytes that stacks of its runs may take on a GPU; waited_s: from the comparison's beginning to
    the worker's; tasks: what it has read of data so far; runs: those that it has begun.
    An initialiser has no other way to hand them to later calls.
    """

    standings: Any
    stop: Any
    room: int | None = None
    waited_s: float = 0.0
    tasks: BuiltTasks = field(default_factory=BuiltTasks)
    runs: int = 0

    def start_clock(self) -> PhaseClock:
        """The clock of a run that starts here; the process began for the first of them."""
        self.runs += 1
        if self.runs > 1:
            return PhaseClock()
        clock = PhaseClock.of_process()
        clock.seconds["comparison"] = self.waited_s
        return clock


_parent: ParentLink | None = None


def join_parent(parent: ParentLink) -> None:
    """Let runs of this process be told to a parent, and be stopped by it."""
    global _parent
    _parent = parent


def _start_worker(parent: ParentLink, env: dict[str, str]) -> None:
    os.environ.update(env)
    join_parent(parent)
    end_with_parent()
    for number in SIGNALS:  # the parent gets them too, and says what is to be done
        signal.signal(number, signal.SIG_IGN)


class _ProgressReporter:
    """A watch that tells the parent where the run stands, a few times a second."""

    def __init__(self, number: int, parent: ParentLink) -> None:
        self._number, self._parent = number, parent
        self._told_at = 0.0

    def __call__(self, standing: Standing) -> None:
        if monotonic() - self._told_at > 0.25 and not standing.over:
            self._tell(standing)

    def tell_end(self, run: Summary) -> None:
        """Tell that the run is over, also where it was so before, or has diverged."""
        last = run.final()
        tested = None if last is None else MetricScore(run.main, last)
        self._tell(Standing(run.end_s, run.rounds, tested, used=1.0, over=True))

    def _tell(self, standing: Standing) -> None:
        self._told_at = monotonic()
        self._parent.standings.put((self._number, standing))


def carry_out(
    number: int,
    config: Config,
    entry: Entry,
    device: str,
    resume: bool,
    overwrite: bool,
    probe_s: float | None,
) -> ProbedRun | None:
    """Carry out a run in this worker.

    probe_s: leave it after so many seconds, to be gone on with, and say how far it came.
    """
    if _parent is None:
        raise FedpaceError("this process is no worker")
    clock = _parent.start_clock()
    reporter = _ProgressReporter(number, _parent)
    probe: RunProbe | None = None
    if probe_s is not None:
        probe = RunProbe(probe_s, policy_plan(config, entry.label).stop, _parent.stop)
    try:
        result = simulate_run(
            config,
            policy=entry.label,
            out=entry.folder,
            device=device,
            resume=resume,
            overwrite=overwrite,
            watches=(reporter,) if probe is None else (reporter, probe),
            stop=_parent.stop if probe is None else probe,
            clock=clock,
            room=_parent.room,
            tasks=_parent.tasks,
        )
    except RunStopped:
        if probe is None or _parent.stop.is_set():
            raise
    else:
        reporter.tell_end(result.summary)
    return None if probe is None else probe.measured()
