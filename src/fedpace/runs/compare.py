"""Several policies on the same data, fleet and seeds, in processes side by side."""

import multiprocessing
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Event
from pathlib import Path
from time import monotonic

from fedpace.core.errors import ConfigError, Count, FedpaceError, check
from fedpace.core.host import cores, end_with_parent
from fedpace.core.model import ModelProfile
from fedpace.core.run import Standing
from fedpace.report.summary import Summary
from fedpace.runs.assembly import check_timing, context_of
from fedpace.runs.config import Config, policy_plan
from fedpace.runs.folder import RunFolder
from fedpace.runs.simulate import check_device, open_result, simulate


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a comparison."""

    label: str
    seed: int
    folder: Path


Progress = Callable[[Entry, Standing], None]

_JOBS_ON_A_GPU = 4  # they take turns; more would only take memory


def labels(config: Config) -> list[str]:
    """The policies to compare, in order; all that are wrong are found before anything runs."""
    chosen = list(config.compare.policies or config.policies)
    if not chosen:
        raise ConfigError("there is nothing to compare; set compare.policies or give --policies a,b,c")
    for label in chosen:
        if not re.fullmatch(r"[\w.-]*\w[\w.-]*", label):
            raise ConfigError(f"label {label!r} cannot name a folder; use letters, digits and . _ -")
        if chosen.count(label) > 1:
            raise ConfigError(f"policy {label!r} is named twice; give another setting its own label")
        plan = policy_plan(config, label)
        # The real model takes a while, and no setting depends on it.
        stand_in = ModelProfile.even(2, 2).squared(plan.widths)
        plan.kind(plan.settings, context_of(plan, config.seed, config.client_count, stand_in))
    return chosen


def compare(
    config: Config,
    out: Path,
    *,
    jobs: int | None = None,
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, list[Summary]]:
    """Run every policy with every seed; the summaries of each label, in the order of seeds.

    Seeds are paired: run i of every policy sees the same data, fleet and initial weights.
    jobs: runs at the same time; by default one a core, fewer on a GPU. Results do not depend on it.
    device: where clients train, as in `simulate`.
    """
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
    spawn = multiprocessing.get_context("spawn")
    standings, stop = spawn.SimpleQueue(), spawn.Event()
    usual = cores() if device == "cpu" else min(cores(), _JOBS_ON_A_GPU)
    count = min(jobs or usual, len(todo))
    with ProcessPoolExecutor(count, spawn, _start_worker, (standings, stop)) as pool:
        futures = [
            pool.submit(
                _one, number, replace(config, seed=entry.seed), entry, device, resume, overwrite
            )
            for number, entry in enumerate(todo)
        ]
        try:
            _follow(futures, todo, standings, progress)
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    groups: dict[str, list[Summary]] = {}
    for entry in todo:
        groups.setdefault(entry.label, []).append(open_result(entry.folder).summary)
    return groups


def _follow(
    futures: Sequence["Future[None]"],
    todo: Sequence[Entry],
    standings: "SimpleQueue[tuple[int, Standing]]",
    progress: Progress | None,
) -> None:
    """Pass progress on until all runs are done; the first error ends it."""
    going_on = set(futures)
    while going_on:
        done, going_on = wait(going_on, timeout=0.2, return_when="FIRST_COMPLETED")
        while not standings.empty():
            number, standing = standings.get()
            if progress is not None:
                progress(todo[number], standing)
        for future in done:
            entry = todo[futures.index(future)]
            where = f"{entry.label}, seed {entry.seed}"
            try:
                future.result()
            except BrokenProcessPool as error:
                raise FedpaceError(
                    f"{where}: its process was killed; go on with --resume, with fewer --jobs if "
                    f"memory ran out"
                ) from error
            except FedpaceError as error:
                raise type(error)(f"{where}: {error}") from error


# What follows runs in the workers.


class _Stopped(Exception):
    """Another run has failed, and this one is not wanted any more."""


@dataclass
class _ParentLink:
    """A worker's ties to its parent; an initialiser has no other way to hand them to later calls."""

    standings: "SimpleQueue[tuple[int, Standing]]"
    stop: Event


_parent: _ParentLink | None = None


def _start_worker(standings: "SimpleQueue[tuple[int, Standing]]", stop: Event) -> None:
    global _parent
    _parent = _ParentLink(standings, stop)
    end_with_parent()


class _ProgressReporter:
    """A watch that tells the parent where the run stands, a few times a second."""

    def __init__(self, number: int, parent: _ParentLink) -> None:
        self._number, self._parent = number, parent
        self._told_at = 0.0
        self.last: Standing | None = None

    def __call__(self, standing: Standing) -> None:
        self.last = standing
        if monotonic() - self._told_at > 0.25:
            self.tell()

    def tell(self) -> None:
        self._told_at = monotonic()
        if self._parent.stop.is_set():
            raise _Stopped
        if self.last is not None:
            self._parent.standings.put((self._number, self.last))


def _one(number: int, config: Config, entry: Entry, device: str, resume: bool, overwrite: bool) -> None:
    if _parent is None:
        raise FedpaceError("this process is no worker")
    reporter = _ProgressReporter(number, _parent)
    simulate(
        config,
        policy=entry.label,
        out=entry.folder,
        device=device,
        resume=resume,
        overwrite=overwrite,
        watches=(reporter,),
    )
    reporter.tell()
