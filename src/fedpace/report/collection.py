"""The report of a folder: every journal in it, grouped by label, as table, figure and JSON."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console

from fedpace.core.errors import JournalError
from fedpace.core.host import write_whole
from fedpace.core.journal import JOURNAL, Header, part_path, read
from fedpace.report.likeness import check_alike
from fedpace.report.looks import FEW_LABELS, MOST_LABELS
from fedpace.report.states import best_cells, best_lines
from fedpace.report.summary import Groups, Summary, chosen_metric, summarise
from fedpace.report.sweep.record import SweepRecord
from fedpace.report.table import markdown
from fedpace.report.tables.layout import comparison_blocks


def collect_runs(
    folder: Path, first: Sequence[str] = (), mix: bool = False
) -> dict[str, list[Summary]]:
    """The runs below `folder` by label, those of `first` in front; each group in the order of seeds.

    Runs that are not over, under way or stopped, are among them as far as they have come. Of a sweep
    that has chosen, the runs of chosen settings on the seeds that are reported.
    mix: take runs that cannot be compared, too: of other data, fleets, models or seeds.
    """
    headers = {path: read(path, unfinished=True)[0] for path in find_journals(folder)}
    record = SweepRecord.read(folder)
    if record is not None and record.chosen and not mix:
        headers = _of_sweep(headers, record)
    if not mix:
        check_alike(headers)
    found: dict[tuple[str, int], Path] = {}
    groups: dict[str, list[Summary]] = {}
    for path in headers:
        whole = path.name == JOURNAL
        summary = summarise(path, unfinished=not whole)
        if whole and summary.finished is None:
            raise JournalError(f"{path} breaks off before its end; the file is cut, run it again")
        twin = found.setdefault((summary.label, summary.seed), path)
        if twin != path:
            raise JournalError(
                f"{twin} and {path} are both {summary.label} with seed {summary.seed}; "
                f"report one of their folders"
            )
        groups.setdefault(summary.label, []).append(summary)
    for runs in groups.values():
        runs.sort(key=lambda summary: summary.seed)
    order = [label for label in first if label in groups]
    return {label: groups[label] for label in [*order, *sorted(set(groups) - set(order))]}


def _of_sweep(headers: Mapping[Path, Header], record: SweepRecord) -> dict[Path, Header]:
    """The runs that a sweep reports."""
    wanted = record.shown_runs()
    found = {
        path: header
        for path, header in headers.items()
        if header.context.seed in wanted.get(str(header.run.get("label")), ())
    }
    if not found:
        raise JournalError(
            "the chosen settings of this sweep have not been run yet; go on with the sweep and "
            "resume=True, or show all of its runs with mix=True"
        )
    return found


def find_journals(folder: Path) -> list[Path]:
    """The journals below a folder; of a run that is not over the part, once its first line is there.

    JournalError where there is none.
    """
    if not folder.exists():
        raise JournalError(
            f"there is no folder {folder}; runs come first, such as: fedpace compare CONFIG.toml "
            f"--out {folder}"
        )
    if not folder.is_dir():
        raise JournalError(f"{folder} is a file; give the folder of a run, or of several")
    found = {path.parent: path for path in folder.rglob(JOURNAL)}
    for part in folder.rglob(part_path(Path(JOURNAL)).name):
        with part.open("rb") as file:
            if file.readline().endswith(b"\n"):
                found[part.parent] = part
    if not found:
        raise JournalError(f"there is no {JOURNAL} in {folder}; give the folder of a run")
    return [found[parent] for parent in sorted(found)]


def write_report(
    groups: Groups,
    folder: Path,
    targets: Sequence[float],
    console: Console,
    title: str | None = None,
    metric: str | None = None,
    cells: Mapping[str, str] | None = None,
) -> None:
    """Print the table; write report.md, report.json, the figure and the page into the folder.

    metric: what targets and figure are of, by default the main one. cells: of a grid, with their
    policies; the best of each is named, and drawn where all are too many.
    """
    targets = targets or default_targets(groups, metric)
    for block in comparison_blocks(groups, targets, console.width, metric):
        console.print(block, no_wrap=True, overflow="ignore", crop=False)
    best = best_lines(groups, cells or {}, metric)
    for line in best:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    notes = "".join(f"\n{line}  " for line in best)
    write_whole(folder / "report.md", markdown(groups, targets, metric) + notes)
    drawn = drawn_labels(groups, cells or {}, metric)
    more = _write_page(groups, folder, targets, title, metric, drawn)
    nothing = {"timeline": None, "bias": None}
    runs = {
        label: [run.to_dict() | more.get((run.label, run.seed), nothing) for run in own]
        for label, own in groups.items()
    }
    options = {"title": title, "metric": metric, "targets": list(targets), "cells": dict(cells or {})}
    values = {**options, "runs": runs}
    write_whole(folder / "report.json", json.dumps(values, indent=1))
    paths = [folder / "report.md", folder / "report.json"]
    if len(drawn) < len(groups):
        words = f"the figure has {len(drawn)} of {len(groups)} labels, those with the best last tests"
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    try:
        from fedpace.report.figures import draw_comparison  # matplotlib takes a second to import

        paths += draw_comparison(drawn, folder / "figure", title, metric)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        words = "there is no figure: matplotlib is not installed; pip install matplotlib"
        console.print(words, markup=False, highlight=False, soft_wrap=True)
    from fedpace.report.page.write import PAGE

    paths.append(folder / PAGE)
    for path in paths:
        console.print(str(path), style="cyan", soft_wrap=True)


def _write_page(
    groups: Groups,
    folder: Path,
    targets: Sequence[float],
    title: str | None,
    metric: str | None,
    drawn: Groups,
) -> dict[tuple[str, int], dict[str, Any]]:
    """Write the page; by label and seed what report.json says of each run's time and bias."""
    from fedpace.report.bias.sentences import explain_bias
    from fedpace.report.page.details import RunDetails
    from fedpace.report.page.write import PAGE, write_page
    from fedpace.report.timeline.explained import explain_timeline

    journals, more = list[Path](), dict[tuple[str, int], dict[str, Any]]()
    with suppress(JournalError):  # runs that were never on disk have no timelines
        journals = find_journals(folder)

    def keep(found: RunDetails) -> None:
        label, bias = found.summary.label, found.bias
        more[label, found.summary.seed] = {
            "timeline": explain_timeline(found.timeline, found.header.context.model),
            "bias": None if bias is None else explain_bias(label, bias),
        }

    write_page(groups, folder / PAGE, targets, journals, title, metric, drawn, keep)
    return more


def drawn_labels(groups: Groups, cells: Mapping[str, str], metric: str | None = None) -> Groups:
    """The labels that a figure has: all that it can tell apart, else those with the best last tests.

    Of more cells of a grid than there are colours, the best of each policy.
    """
    drawn = groups
    if len(groups) > FEW_LABELS and cells:
        best = {label for label in best_cells(groups, cells, metric).values() if label}
        drawn = {label: runs for label, runs in groups.items() if label in best} or groups
    if len(drawn) <= MOST_LABELS:
        return drawn
    info = chosen_metric(drawn, metric)

    def shortfall(label: str) -> float:
        """The less, the better the label's last tests; those without any come last."""
        found = [run.final(info.name) for run in drawn[label] if info and info.name in run.values]
        known = [value for value in found if value is not None]
        if info is None or not known:
            return math.inf
        return -fmean(known) if info.higher_is_better else fmean(known)

    kept = set(sorted(drawn, key=shortfall)[:MOST_LABELS])
    return {label: runs for label, runs in drawn.items() if label in kept}


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Title, targets, runs by label and seed in their order, metric and, of a grid, its cells."""

    title: str | None = None
    targets: tuple[float, ...] = ()
    runs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    metric: str | None = None
    cells: Mapping[str, str] = field(default_factory=dict)


def last_report_options(folder: Path) -> ReportOptions:
    """Options of the folder's report.json; without it those of a sweep that is there, or none."""
    try:
        values = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        targets = tuple(values["targets"])
        seeds = {label: tuple(run["seed"] for run in runs) for label, runs in values["runs"].items()}
        cells = dict(values.get("cells", {}))
        return ReportOptions(values["title"], targets, seeds, values.get("metric"), cells)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        record = SweepRecord.read(folder)
        if record is None or not record.chosen:
            return ReportOptions()
        aims, order = record.criterion, dict.fromkeys(record.shown_runs(), ())
        return ReportOptions(record.name, aims.targets, order, aims.metric)


def gone_runs(before: ReportOptions, groups: Groups) -> list[str]:
    """Runs of the last report whose journals are there no more, one line each."""
    there = {(label, run.seed) for label, runs in groups.items() for run in runs}
    return [
        f"{label}, seed {seed}: in the last report, but its journal is gone"
        for label, seeds in before.runs.items()
        for seed in seeds
        if (label, seed) not in there
    ]


def default_targets(groups: Groups, metric: str | None = None) -> tuple[float, ...]:
    """Two round targets that most runs reach.

    Of a share 80% and 95% of the median of their best; of others so much of the way from the first
    test to the best.
    """
    info = chosen_metric(groups, metric)
    tested = [run for runs in groups.values() for run in runs if info and run.values.get(info.name)]
    if info is None or not tested:
        return ()
    best = _middle([value for run in tested if (value := run.best(info.name)) is not None])
    if info.share and info.higher_is_better:
        return tuple(sorted({round(share * best * 20) / 20 for share in (0.8, 0.95)} - {0.0}))
    first = _middle([run.metric(info.name)[0][1] for run in tested])
    # Two digits of the way, so that targets are short and differ.
    step = 10.0 ** (math.floor(math.log10(abs(best - first))) - 1) if best != first else 1.0
    aims = {round(round((first + share * (best - first)) / step) * step, 12) for share in (0.8, 0.95)}
    return tuple(sorted(aims, reverse=not info.higher_is_better)) if best != first else ()


def _middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]
