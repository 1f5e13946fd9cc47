"""Several policies side by side from Python: `fedpace.compare`."""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedpace.core.children.packing import CannotBeSent, without_main
from fedpace.core.errors import ConfigError, Count, FedpaceError, NothingHappened, check
from fedpace.core.policy import Policy
from fedpace.core.run import Standing
from fedpace.runs import config as configs
from fedpace.runs.comparison import compare as engine
from fedpace.runs.comparison.grid import expand_grid
from fedpace.runs.comparison.workers import Entry
from fedpace.runs.config import Config
from fedpace.runs.disk.lock import FolderLock
from fedpace.runs.folder import RunFolder, check_folder_given
from fedpace.runs.own.classes import with_policies, with_policy
from fedpace.runs.progress.choice import open_board
from fedpace.runs.results.compared import ComparisonResult
from fedpace.runs.results.places import TemporaryFolder
from fedpace.runs.results.result import Result, open_result
from fedpace.runs.results.weights import FinalWeights
from fedpace.runs.simulate import check_device, simulate_run

if TYPE_CHECKING:
    from fedpace.learn.tasks.task import Task

Policies = Iterable[str | type[Policy[Any]]] | Mapping[str, Any]


def compare(
    config: Config | Mapping[str, Any] | str | Path,
    *,
    task: "Task | None" = None,
    policies: Policies | None = None,
    seeds: int | Sequence[int] | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    device: str = "cpu",
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
) -> ComparisonResult:
    """Run several policies on the same data, fleet and seeds.

        found = fedpace.compare("config.toml", policies=["timelyfl", "sync", Mine], seeds=3)
        print(found.table())

    config: path of a TOML file, a dict of its keys, or a Config; task: instead of the config's;
    policies: labels, names or classes, or a dict of them by label, in which a table of settings with
    `use` may stand, too; by default those of the config; seeds: how many, from the config's seed on, or
    which; run i of every policy sees the same data, fleet and initial weights;
    jobs: runs at the same time, by default one a core; 1 runs them one after the other in this process.
    Results do not depend on it. out: a folder for the runs; without one they are deleted with the
    result; device, resume, overwrite, progress: as in `simulate`. A run that fails leaves the others
    alone, and is in `failed` of the result.
    """
    check_folder_given(out, resume, overwrite)
    settings = _with_policies(configs.load(config), policies)
    settings = replace(settings, own=replace(settings.own, task=task))
    check("jobs", jobs, Count)
    chosen, alone = _seeds(settings, seeds), jobs == 1
    if jobs is None:
        try:
            settings.own.packed()
        except CannotBeSent as error:
            alone = True
            warnings.warn(f"runs go one after the other: {error}", UserWarning, 2)
    place = TemporaryFolder() if out is None else None
    folder = Path(out or (place.path if place else ""))
    options: dict[str, Any] = {"device": device, "resume": resume, "overwrite": overwrite}
    with open_board(progress) as board:
        follow = None
        if board is not None:
            follow = engine.follow_comparison(board, settings)
            board.total = len(chosen) * len(engine.labels(expand_grid(settings)[0]))
        if alone:
            results, failed = _in_order(settings, folder, chosen, follow, options)
        else:
            with without_main(hidden=not settings.own.packed().needs_main):
                found = engine.compare(
                    settings, folder, jobs=jobs, progress=follow, seeds=chosen, **options
                )
            results, failed = _opened(found, folder), found.failed
    kept = {
        label: [_with_task(one, task, settings.folder, place) for one in runs]
        for label, runs in results.items()
    }
    for runs in kept.values():
        for one in runs:
            if one.summary.nothing is not None:
                words = f"{one.summary.label}, seed {one.summary.seed}: nothing happened"
                warnings.warn(f"{words}: {one.summary.nothing}", NothingHappened, 2)
    aims = settings.compare
    broken = {(entry.label, entry.seed): error for entry, error in failed.items()}
    return ComparisonResult(kept, folder, broken, settings.name, aims.targets, aims.metric)


def _with_policies(config: Config, policies: Policies | None) -> Config:
    """The config with the policies that are to be compared."""
    if policies is None:
        return config
    if isinstance(policies, str | type):
        raise ConfigError(f"policies is {policies!r}; give a list, such as ['timelyfl', 'sync']")
    if isinstance(policies, Mapping):
        config, chosen = with_policies(config, policies), list(policies)
    else:
        chosen = []
        for one in policies:
            config, label = with_policy(config, one)
            chosen.append(label)
    return replace(config, compare=replace(config.compare, policies=tuple(chosen)))


def _seeds(config: Config, seeds: int | Sequence[int] | None) -> Sequence[int]:
    if seeds is None or isinstance(seeds, int):
        check("seeds", seeds, Count)
        return range(config.seed, config.seed + (seeds or config.compare.seeds))
    chosen = list(seeds)
    if not chosen or len(set(chosen)) < len(chosen) or not all(isinstance(s, int) for s in chosen):
        raise ConfigError(f"seeds is {seeds!r}; give a number of them, or different whole numbers")
    return chosen


def _opened(found: engine.Comparison, folder: Path) -> dict[str, list[Result]]:
    return {
        label: [open_result(folder / label / f"seed-{run.seed}") for run in runs]
        for label, runs in found.groups.items()
    }


def _in_order(
    config: Config,
    folder: Path,
    seeds: Sequence[int],
    follow: Callable[[Entry, Standing], None] | None,
    options: dict[str, Any],
) -> tuple[dict[str, list[Result]], dict[Entry, Exception]]:
    """One run after the other in this process; Ctrl-C ends the one under way, as in `simulate`."""
    config, _ = expand_grid(config)
    labels = engine.labels(config)
    check_device(options["device"])
    todo = [Entry(name, s, folder / name / f"seed-{s}") for s in seeds for name in labels]
    if not (options["resume"] or options["overwrite"]):
        for entry in todo:
            RunFolder(entry.folder).check_free()
    results: dict[str, list[Result]] = {label: [] for label in labels}
    failed: dict[Entry, Exception] = {}
    folder.mkdir(parents=True, exist_ok=True)
    with FolderLock(folder):
        for entry in todo:
            watches = () if follow is None else (_told(follow, entry),)
            own = replace(config, seed=entry.seed)
            try:
                run = simulate_run(
                    own, policy=entry.label, out=entry.folder, watches=watches, **options
                )
                results[entry.label].append(run)
            except Exception as error:
                failed[entry] = error
    if len(failed) == len(todo):
        first, cause = next(iter(failed.items()))
        raise FedpaceError(f"all runs failed; {engine.describe_failure(first, cause)}") from cause
    return {label: runs for label, runs in results.items() if runs}, failed


def _told(follow: Callable[[Entry, Standing], None], entry: Entry) -> Callable[[Standing], None]:
    return lambda standing: follow(entry, standing)


def _with_task(
    result: Result, task: "Task | None", folder: Path, place: TemporaryFolder | None
) -> Result:
    """The result, with the task that its model is of, and the folder that it lies in kept."""
    header, where = result.journal.header, result.folder
    path = None if where is None or not header.context.metrics else where / "weights.pt"
    final = FinalWeights(header, path, task=task, folder=folder, place=place)
    return replace(result, _final=final)
