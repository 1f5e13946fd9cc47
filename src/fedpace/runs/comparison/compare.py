"""Several policies on the same data, fleet and seeds, in processes side by side."""

import multiprocessing
import re
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from time import monotonic
from typing import Self

from fedpace.core.contract.faults import make_policy
from fedpace.core.errors import ConfigError, Count, FedpaceError, check
from fedpace.core.host import cores, end_with_parent
from fedpace.core.model import ModelProfile
from fedpace.core.run import MetricScore, Standing, Watch
from fedpace.remote.reports import RunStopped
from fedpace.report.summary import Summary
from fedpace.report.trackers.settings import TrackSettings
from fedpace.runs.assembly import check_timing, context_of
from fedpace.runs.comparison.grid import expand_grid
from fedpace.runs.config import Config, policy_plan
from fedpace.runs.disk.lock import FolderLock
from fedpace.runs.folder import RunFolder
from fedpace.runs.progress.board import ProgressBoard
from fedpace.runs.results.result import open_result
from fedpace.runs.simulate import check_device, simulate_run
from fedpace.runs.stopping import SIGNALS, StoppedBySignal, StopSignals
from fedpace.runs.tracking import LiveTracking


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a comparison."""

    label: str
    seed: int
    folder: Path


Progress = Callable[[Entry, Standing], None]
_Call = tuple[int, Config, Entry, str, bool, bool]
"""Arguments of `_one`."""

_JOBS_ON_A_GPU = 4  # they take turns; more would only take memory


def labels(config: Config) -> list[str]:
    """The policies to compare, in order; all that are wrong are found before anything runs."""
    chosen = list(config.compare.policies or config.policies)
    if not chosen:
        raise ConfigError(
            "there is nothing to compare; set compare.policies, or give policies=['a', 'b']"
        )
    for label in chosen:
        if not re.fullmatch(r"[\w.=-]*\w[\w.=-]*", label):
            raise ConfigError(f"label {label!r} cannot name a folder; use letters, digits and . _ - =")
        if chosen.count(label) > 1:
            raise ConfigError(f"policy {label!r} is named twice; give another setting its own label")
        plan = policy_plan(config, label)
        # The real model takes a while, and no setting depends on it.
        stand_in = ModelProfile.even(2, 2).squared(plan.widths)
        context = context_of(plan, config.seed, config.client_count, stand_in)
        make_policy(plan.kind, plan.settings, context)
    return chosen


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison: summaries by label, in the order of seeds, and runs that failed."""

    groups: dict[str, list[Summary]]
    failed: dict[Entry, Exception]


def compare(
    config: Config,
    out: Path,
    *,
    jobs: int | None = None,
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Comparison:
    """Run every policy with every seed. A run that fails leaves the others alone.

    Seeds are paired: run i of every policy sees the same data, fleet and initial weights.
    jobs: runs at the same time; by default one a core, fewer on a GPU. Results do not depend on it.
    device: where clients train, as in `simulate`. Ctrl-C and SIGTERM let every run under way save a
    snapshot, and end it by StoppedBySignal.
    """
    config, _ = expand_grid(config)
    seeds = range(config.seed, config.seed + config.compare.seeds)
    todo = [Entry(name, s, out / name / f"seed-{s}") for s in seeds for name in labels(config)]
    check("jobs", jobs, Count)
    check_device(device)
    if config.timing_only or config.task.get("kind") == "timing":
        for label in labels(config):
            check_timing(policy_plan(config, label))
    if not (resume or overwrite):
        for entry in todo:
            RunFolder(entry.folder).check_free()
    usual = cores() if device == "cpu" else min(cores(), _JOBS_ON_A_GPU)
    tracking = LiveTracking(config, out)
    alone = replace(config, track=TrackSettings())  # one process follows them all
    calls = [
        (number, replace(alone, seed=entry.seed), entry, device, resume, overwrite)
        for number, entry in enumerate(todo)
    ]
    failed: dict[Entry, Exception] = {}
    out.mkdir(parents=True, exist_ok=True)
    at_once = min(jobs or usual, len(todo))
    with FolderLock(out), tracking, StopSignals() as signals, _WorkerPool(at_once) as pool:
        going_on = {pool.submit(call): entry for call, entry in zip(calls, todo, strict=True)}
        while going_on:
            wait(going_on, timeout=0.2, return_when="FIRST_COMPLETED")
            # Before what they have told is read. Not what `wait` says: it waits for cancelled ones.
            done = [future for future in going_on if future.done()]
            for number, standing in pool.standings():
                tracking.follow(todo[number].folder)
                if progress is not None:
                    progress(todo[number], standing)
            if signals.number is not None:
                pool.stop()
            for future in done:
                entry = going_on.pop(future)
                error = None if future.cancelled() else future.exception()
                if isinstance(error, Exception) and not isinstance(error, RunStopped):
                    failed[entry] = error
                elif not future.cancelled():
                    tracking.follow(entry.folder)
    failed = {entry: failed[entry] for entry in todo if entry in failed}
    ended = [entry for entry in todo if entry not in failed]
    if signals.number is not None:
        there = sum(RunFolder(entry.folder).is_over for entry in ended)
        raise StoppedBySignal(signals.number, f"with {there} of {len(todo)} runs finished")
    if not ended:
        entry, error = next(iter(failed.items()))
        raise FedpaceError(f"all runs failed; {describe_failure(entry, error)}") from error
    groups: dict[str, list[Summary]] = {}
    for entry in ended:
        groups.setdefault(entry.label, []).append(open_result(entry.folder).summary)
    return Comparison({label: groups[label] for label in labels(config) if label in groups}, failed)


def follow_comparison(board: ProgressBoard, config: Config) -> Progress:
    """The `progress` of a comparison on a board: every policy with every seed is a run."""
    config, _ = expand_grid(config)
    board.total = config.compare.seeds * len(labels(config))
    watches: dict[Entry, Watch] = {}

    def update(entry: Entry, standing: Standing) -> None:
        if entry not in watches:
            stop = policy_plan(config, entry.label).stop
            watches[entry] = board.watch(f"{entry.label} seed {entry.seed}", stop)
        watches[entry](standing)

    return update


def describe_failure(entry: Entry, error: Exception) -> str:
    """One line about a run that failed."""
    where = f"{entry.label}, seed {entry.seed}"
    if isinstance(error, FedpaceError):
        return f"{where}: {error}"
    if isinstance(error, BrokenProcessPool):
        return f"{where}: its process was killed; go on with fewer jobs if memory ran out"
    return f"{where}: {type(error).__name__}: {error}"


class _WorkerPool:
    """Processes that each carry out one run after the other; one that is killed takes no other along.

    A pool of several processes breaks as a whole, and a process that is killed may hold a lock for
    ever: so every thread here has a pool of a single process, which has its own ties to this one.
    """

    def __init__(self, count: int) -> None:
        self._spawn = multiprocessing.get_context("spawn")
        self._threads = ThreadPoolExecutor(count, "fedpace-compare")
        self._own = threading.local()
        self._workers: list[tuple[ProcessPoolExecutor, _ParentLink]] = []

    def submit(self, call: "_Call") -> "Future[None]":
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

    def _run(self, call: "_Call") -> None:
        process: ProcessPoolExecutor | None = getattr(self._own, "process", None)
        if process is None:
            link = _ParentLink(self._spawn.SimpleQueue(), self._spawn.Event())
            process = ProcessPoolExecutor(1, self._spawn, _start_worker, (link,))
            self._own.process = process
            self._workers.append((process, link))
        try:
            process.submit(_one, *call).result()
        except BrokenProcessPool:
            self._own.process = None
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._threads.shutdown()
        for process, _link in self._workers:
            process.shutdown()


# What follows runs in the workers.


@dataclass
class _ParentLink:
    """A worker's ties to its parent; an initialiser has no other way to hand them to later calls."""

    standings: "SimpleQueue[tuple[int, Standing]]"
    stop: Event


_parent: _ParentLink | None = None


def _start_worker(parent: _ParentLink) -> None:
    global _parent
    _parent = parent
    end_with_parent()
    for number in SIGNALS:  # the parent gets them too, and says what is to be done
        signal.signal(number, signal.SIG_IGN)


class _ProgressReporter:
    """A watch that tells the parent where the run stands, a few times a second."""

    def __init__(self, number: int, parent: _ParentLink) -> None:
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


def _one(number: int, config: Config, entry: Entry, device: str, resume: bool, overwrite: bool) -> None:
    if _parent is None:
        raise FedpaceError("this process is no worker")
    reporter = _ProgressReporter(number, _parent)
    result = simulate_run(
        config,
        policy=entry.label,
        out=entry.folder,
        device=device,
        resume=resume,
        overwrite=overwrite,
        watches=(reporter,),
        stop=_parent.stop,
    )
    reporter.tell_end(result.summary)
