"""Sweeps: every setting of a grid on some seeds, then the best of each policy on others.

The choice and what is reported of it never share a seed: the best of many settings on one set of seeds
is partly the luckiest, and would be too good on the same ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from fedpace.core.errors import Count, FedpaceError, NonNegative, check
from fedpace.report.summary import chosen_metric
from fedpace.report.sweep.choice import best_of_each, score_runs
from fedpace.report.sweep.record import SweepRecord
from fedpace.runs.comparison.compare import (
    Comparison,
    Progress,
    check_executor,
    compare,
    jobs_at_once,
    probe_runs,
)
from fedpace.runs.comparison.estimate import ProbedRun, TimeEstimate, estimate_time
from fedpace.runs.comparison.sweep_plan import SweepPlan, plan_sweep
from fedpace.runs.comparison.workers import Entry
from fedpace.runs.config import Config
from fedpace.runs.disk.lock import FolderLock
from fedpace.runs.folder import RunFolder

PROBE_S = 3.0
"""Seconds for which each of some runs is measured before a sweep, for the estimate."""


@dataclass(frozen=True)
class SweepOutcome:
    """The outcome of a sweep: its record, the runs that are reported, and those that failed."""

    record: SweepRecord
    reported: Comparison
    failed: dict[Entry, Exception]


@dataclass(frozen=True, slots=True)
class SweepStage:
    """A part of a sweep that is about to begin: "choose" or "report", its runs, those that are left.

    estimate: of the whole sweep, where it is known.
    """

    name: str
    config: Config
    runs: int
    left: int
    jobs: int
    estimate: TimeEstimate | None = None


@dataclass(frozen=True, slots=True)
class _Probing:
    """How first runs are measured."""

    jobs: int
    device: str
    executor: str
    seconds: float


OnStage = Callable[[SweepStage], Progress | None]


def run_sweep(
    config: Config,
    out: Path,
    *,
    jobs: int | None = None,
    device: str = "cpu",
    executor: str = "processes",
    resume: bool = False,
    overwrite: bool = False,
    probe_s: float = PROBE_S,
    on_stage: OnStage | None = None,
) -> SweepOutcome:
    """Try every setting, choose the best of each policy, and run those on other seeds.

    jobs, device, executor: as in `compare`; resume: go on with what the folder holds, also of another
    grid: runs of the same settings are not run again; overwrite: delete the sweep's runs there first.
    probe_s: seconds for which the first runs are measured to tell how long it will take; 0: not at all.
    on_stage: is told what begins, and gives who follows its runs.
    """
    check("jobs", jobs, Count)
    check("probe_s", probe_s, NonNegative)
    check_executor(executor, device)
    plan = plan_sweep(config, SweepRecord.read(out) if resume else None)
    choice = plan.choice_entries(out)
    if overwrite:
        _clear(out, [*choice, *plan.report_entries(out)])
    elif not resume:
        for entry in [*choice, *plan.report_entries(out)]:
            RunFolder(entry.folder).check_free()
    out.mkdir(parents=True, exist_ok=True)
    plan.record.write(out)
    left = runs_left(choice)
    at_once = jobs_at_once(jobs, device, len(left))
    estimate = None
    if probe_s > 0 and len(left) > at_once:
        probing = _Probing(at_once, device, executor, probe_s)
        estimate = _estimate(plan, left, probing)
    stage = SweepStage("choose", plan.choosing, len(choice), len(runs_left(choice)), at_once, estimate)
    progress = None if on_stage is None else on_stage(stage)
    chosen = compare(
        stage.config, out, jobs=jobs, device=device, executor=executor, resume=True, progress=progress
    )
    record = choose(plan.record, chosen)
    record.write(out)
    if not any(record.chosen.values()):
        raise FedpaceError(
            f"none of {len(record.cells)} settings has ended well with all {len(record.choose_seeds)} "
            f"seeds, so that there is nothing to report; see {out / 'sweep.json'}"
        )
    final = plan.reporting(record.chosen)
    entries = [entry for entry in plan.report_entries(out) if entry.label in final.compare.policies]
    at_once = jobs_at_once(jobs, device, len(entries))
    stage = SweepStage("report", final, len(entries), len(runs_left(entries)), at_once)
    progress = None if on_stage is None else on_stage(stage)
    reported = compare(
        final, out, jobs=jobs, device=device, executor=executor, resume=True, progress=progress
    )
    record = report_chosen(record, reported)
    record.write(out)
    return SweepOutcome(record, reported, {**chosen.failed, **reported.failed})


def choose(record: SweepRecord, found: Comparison) -> SweepRecord:
    """The record with the scores of all cells, and the best of each policy."""
    policies = {cell.label: cell.policy for cell in record.cells}
    seeds = len(record.choose_seeds)
    best, scores = best_of_each(found.groups, policies, record.criterion, seeds)
    cells = tuple(replace(cell, score=scores[cell.label]) for cell in record.cells)
    metric = chosen_metric(found.groups, record.criterion.metric)
    return replace(record, cells=cells, chosen=best, metric=metric)


def report_chosen(record: SweepRecord, found: Comparison) -> SweepRecord:
    """The record with what chosen settings come to on the other seeds."""
    seeds, metric = len(record.seeds), record.metric
    scores = {
        label: score_runs(found.groups.get(label, ()), record.criterion, metric, seeds)
        for label in record.shown_runs()
    }
    return replace(record, reported=scores)


def runs_left(entries: list[Entry]) -> list[Entry]:
    """Runs that are not over."""
    return [entry for entry in entries if not RunFolder(entry.folder).is_over]


def _estimate(plan: SweepPlan, left: list[Entry], probing: "_Probing") -> TimeEstimate | None:
    """The time that the sweep will take, by the first and the last setting of each policy."""
    record = plan.record
    fresh = [entry for entry in left if RunFolder(entry.folder).header() is None]
    probed: list[Entry] = []
    for policy in record.policies:
        own = [cell.label for cell in record.cells_of(policy)]
        mine = sorted((one for one in fresh if one.label in own), key=lambda one: own.index(one.label))
        probed += list(dict.fromkeys([*mine[:1], *mine[-1:]]))
    found = probe_runs(
        plan.choosing, probed, probing.jobs, probing.device, probing.seconds, probing.executor
    )
    policies = {cell.label: cell.policy for cell in record.cells}
    probes: dict[str, list[ProbedRun]] = {}
    for entry, probe in found.items():
        probes.setdefault(policies[entry.label], []).append(probe)
    runs = {
        policy: sum(policies[entry.label] == policy for entry in left) + len(record.seeds)
        for policy in record.policies
    }
    return estimate_time(probes, runs, probing.jobs)


def _clear(out: Path, entries: list[Entry]) -> None:
    """Delete the runs of a sweep that are there."""
    out.mkdir(parents=True, exist_ok=True)
    with FolderLock(out):
        for entry in entries:
            RunFolder(entry.folder).delete_run()
