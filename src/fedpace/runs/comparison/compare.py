"""Several policies on the same data, fleet and seeds, in processes side by side."""

import re
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path

from fedpace.core.contract.faults import make_policy
from fedpace.core.errors import ConfigError, Count, FedpaceError, check, needs_extra, unknown
from fedpace.core.host import cores
from fedpace.core.model import ModelProfile
from fedpace.core.run import Standing, Watch
from fedpace.remote.reports import RunStopped
from fedpace.report.summary import Summary
from fedpace.report.trackers.settings import TrackSettings
from fedpace.runs.assembly import check_timing, context_of, earlier_precision
from fedpace.runs.comparison.estimate import ProbedRun
from fedpace.runs.comparison.gpu_sharing import MOST_JOBS, free_bytes, jobs_on_gpu
from fedpace.runs.comparison.grid import expand_grid
from fedpace.runs.comparison.workers import Entry, RunCall, RunPool, WorkerPool
from fedpace.runs.config import Config, policy_plan
from fedpace.runs.disk.lock import FolderLock
from fedpace.runs.folder import RunFolder
from fedpace.runs.progress.board import ProgressBoard
from fedpace.runs.results.result import open_result
from fedpace.runs.simulate import check_device
from fedpace.runs.stopping import StoppedBySignal, StopSignals
from fedpace.runs.tracking import LiveTracking

Progress = Callable[[Entry, Standing], None]


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
        check_policy(config, label)
    return chosen


def check_policy(config: Config, label: str) -> None:
    """ConfigError for settings of a policy that are wrong by themselves, together or in this run."""
    plan = policy_plan(config, label)
    # The real model takes a while, and no setting depends on it.
    stand_in = ModelProfile.even(2, 2).squared(plan.widths)
    make_policy(plan.kind, plan.settings, context_of(plan, config.seed, config.client_count, stand_in))
    if config.timing_only or config.task.get("kind") == "timing":
        check_timing(plan)


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
    executor: str = "processes",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    seeds: Sequence[int] | None = None,
) -> Comparison:
    """Run every policy with every seed. A run that fails leaves the others alone.

    Seeds are paired: run i of every policy sees the same data, fleet and initial weights.
    jobs: runs at the same time; by default one a core, fewer on a GPU. Results do not depend on it.
    device: where clients train, as in `simulate`; executor: whose workers carry out the runs, processes
    of this machine or a cluster's (ray), which sends back what a run writes; seeds: instead of the
    config's first one and their number.
    Ctrl-C and SIGTERM let every run under way save a snapshot, and end it by StoppedBySignal.
    """
    config, _ = expand_grid(config)
    if seeds is None:
        seeds = range(config.seed, config.seed + config.compare.seeds)
    todo = [Entry(name, s, out / name / f"seed-{s}") for s in seeds for name in labels(config)]
    check("jobs", jobs, Count)
    check_executor(executor, device)
    if not (resume or overwrite):
        for entry in todo:
            RunFolder(entry.folder).check_free()
    if resume:
        config = _with_earlier_precision(config, todo)
    tracking = LiveTracking(config, out)
    alone = replace(config, track=TrackSettings())  # one process follows them all
    calls: list[RunCall] = [
        (number, replace(alone, seed=entry.seed), entry, device, resume, overwrite, None)
        for number, entry in enumerate(todo)
    ]
    failed: dict[Entry, Exception] = {}
    out.mkdir(parents=True, exist_ok=True)
    at_once = jobs_at_once(jobs, device, len(todo))
    opened = open_pool(executor, at_once, device)
    with FolderLock(out), tracking, StopSignals() as signals, opened as pool:
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


def _with_earlier_precision(config: Config, todo: Sequence[Entry]) -> Config:
    """The config with the precision of runs that are there, so that the others are trained alike."""
    if config.train.precision != "by device":
        return config
    for entry in todo:
        header = RunFolder(entry.folder).header()
        if header is not None:
            return replace(config, train=replace(config.train, precision=earlier_precision(header)))
    return config


def jobs_at_once(jobs: int | None, device: str, runs: int) -> int:
    """Runs at the same time: as many as are asked for, else one a core, fewer on a GPU."""
    usual = jobs or (cores() if device == "cpu" else jobs_on_gpu(device, cores()))
    return max(1, min(usual, runs))


def check_executor(executor: str, device: str) -> None:
    """Refuse workers that there are not, and a device that this machine's have not."""
    if executor not in ("processes", "ray"):
        raise unknown("executor", executor, ("processes", "ray"))
    if executor == "processes":
        # Where the GPU answers, torch, which takes seconds, is left to the runs.
        if device == "cpu" or not re.fullmatch(r"cuda(:\d+)?", device) or free_bytes(device) is None:
            check_device(device)
    else:
        with needs_extra("ray"):
            import_module("ray")


def open_pool(executor: str, count: int, device: str) -> RunPool:
    """Workers of this machine, or of a Ray cluster."""
    if executor == "processes":
        return WorkerPool(count, device)
    from fedpace.runs.comparison.ray_pool import RayPool

    return RayPool(count, 0.0 if device == "cpu" else 1.0 / MOST_JOBS)


def probe_runs(
    config: Config,
    todo: Sequence[Entry],
    jobs: int,
    device: str,
    seconds: float,
    executor: str = "processes",
) -> dict[Entry, ProbedRun]:
    """Begin runs, measure each for some seconds and leave it, to be gone on with.

    One that fails is left out: it will fail again. Where all of them are refused, so would the others
    be: then it is a ConfigError. Ctrl-C and SIGTERM end it by StoppedBySignal.
    """
    found: dict[Entry, ProbedRun] = {}
    refused: list[str] = []
    alone = replace(config, track=TrackSettings())
    with StopSignals() as signals, open_pool(executor, jobs, device) as pool:
        calls: list[RunCall] = [
            (number, replace(alone, seed=entry.seed), entry, device, True, False, seconds)
            for number, entry in enumerate(todo)
        ]
        going_on = {pool.submit(call): entry for call, entry in zip(calls, todo, strict=True)}
        while not all(future.done() for future in going_on):
            wait(going_on, timeout=0.2, return_when="FIRST_COMPLETED")
            for _ in pool.standings():
                pass
            if signals.number is not None:
                pool.stop()
        for future, entry in going_on.items():
            error = None if future.cancelled() else future.exception()
            if isinstance(error, ConfigError):
                refused.append(describe_failure(entry, error))
            elif not future.cancelled() and error is None and (measured := future.result()):
                found[entry] = measured
    if signals.number is not None:
        raise StoppedBySignal(signals.number, "before the first run was over")
    if refused and len(refused) == len(todo):
        raise ConfigError(refused[0])
    return found


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
