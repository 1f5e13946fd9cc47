"""Several policies on the same data, fleet and seeds, in processes side by side."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from time import monotonic

from fedpace.api import JOURNAL, open_result, simulate
from fedpace.config import Config, policy_plan
from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.core.journal import part_path
from fedpace.core.process import cores, end_with_parent
from fedpace.report.summary import Summary
from fedpace.sim.run import Standing


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of a comparison."""

    label: str
    seed: int
    folder: Path


Progress = Callable[[Entry, Standing], None]


def entries(config: Config, out: Path) -> list[Entry]:
    """The runs of a comparison; seeds are paired, so run i of every policy sees the same world."""
    labels = list(config.compare.policies or config.policies)
    if not labels:
        raise ConfigError("there is nothing to compare; set compare.policies or give --policies a,b,c")
    for label in labels:
        policy_plan(config, label)
        if labels.count(label) > 1:
            raise ConfigError(f"policy {label!r} is named twice; give another setting its own label")
    return [
        Entry(label, config.seed + i, out / label / f"seed-{config.seed + i}")
        for i in range(config.compare.seeds)
        for label in labels
    ]


def compare(
    config: Config,
    out: Path,
    *,
    jobs: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, list[Summary]]:
    """Run every entry and return the summaries of each label, in the order of seeds.

    jobs: runs at the same time; by default one a core. Results do not depend on it.
    """
    todo = entries(config, out)
    if jobs is not None and jobs < 1:
        raise ConfigError(f"jobs is {jobs}; set it to 1 or more")
    _check_free(todo, resume, overwrite)
    spawn = multiprocessing.get_context("spawn")
    standings: SimpleQueue[tuple[int, Standing]] = spawn.SimpleQueue()
    count = min(jobs or cores(), len(todo))
    with ProcessPoolExecutor(count, spawn, _start_worker, (standings,)) as pool:
        futures = [
            pool.submit(_one, number, replace(config, seed=entry.seed), entry, resume, overwrite)
            for number, entry in enumerate(todo)
        ]
        try:
            _follow(futures, todo, standings, progress)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return collect(todo)


def collect(done: Sequence[Entry]) -> dict[str, list[Summary]]:
    groups: dict[str, list[Summary]] = {}
    for entry in done:
        groups.setdefault(entry.label, []).append(open_result(entry.folder).summary)
    return groups


def _check_free(todo: Sequence[Entry], resume: bool, overwrite: bool) -> None:
    if resume or overwrite:
        return
    for entry in todo:
        if (entry.folder / JOURNAL).exists() or part_path(entry.folder / JOURNAL).exists():
            raise ConfigError(
                f"{entry.folder} holds a run already; use --resume, --overwrite or another folder"
            )


def _follow(
    futures: Sequence[Future[None]],
    todo: Sequence[Entry],
    standings: "SimpleQueue[tuple[int, Standing]]",
    progress: Progress | None,
) -> None:
    """Pass progress on until all runs are done; the first error ends it."""
    open_ = set(futures)
    while open_:
        done, open_ = wait(open_, timeout=0.2, return_when="FIRST_COMPLETED")
        while not standings.empty():
            number, standing = standings.get()
            if progress is not None:
                progress(todo[number], standing)
        for future in done:
            entry = todo[futures.index(future)]
            try:
                future.result()
            except BrokenProcessPool as error:
                raise FedpaceError(
                    f"the process of {entry.label}, seed {entry.seed}, was killed; "
                    f"go on with --resume, with fewer --jobs if memory ran out"
                ) from error


# In the worker process

_STANDINGS: "list[SimpleQueue[tuple[int, Standing]]]" = []
"""The queue to the parent; a pool's initialiser has no other way to hand it to later calls."""


def _start_worker(standings: "SimpleQueue[tuple[int, Standing]]") -> None:
    _STANDINGS.append(standings)
    end_with_parent()


def _one(number: int, config: Config, entry: Entry, resume: bool, overwrite: bool) -> None:
    last = 0.0
    queue = _STANDINGS[0]

    def tell(standing: Standing) -> None:
        nonlocal last
        if monotonic() - last > 0.25:
            last = monotonic()
            queue.put((number, standing))

    final: list[Standing] = []
    simulate(
        config,
        policy=entry.label,
        out=entry.folder,
        resume=resume,
        overwrite=overwrite,
        watches=(tell, lambda standing: final.__setitem__(slice(0, 1), [standing])),
    )
    if final:
        queue.put((number, final[0]))
