"""The report of a folder: every journal in it, grouped by label, as table, figure and JSON."""

import json
import os
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from fedpace.core.errors import JournalError
from fedpace.report.summary import Summary, summarise
from fedpace.report.table import compare_table, markdown

JOURNALS = "journal.jsonl"


def collect(folder: Path, first: Sequence[str] = ()) -> dict[str, list[Summary]]:
    """The runs below `folder` by label, those of `first` in front; each group in the order of seeds."""
    paths = sorted(folder.rglob(JOURNALS)) if folder.is_dir() else []
    if not paths:
        unfinished = folder.is_dir() and any(folder.rglob(JOURNALS + ".part"))
        hint = "its run is not over, go on with --resume" if unfinished else "give the folder of a run"
        raise JournalError(f"there is no {JOURNALS} in {folder}; {hint}")
    groups: dict[str, list[Summary]] = {}
    for summary in sorted(map(summarise, paths), key=lambda summary: summary.seed):
        groups.setdefault(summary.label, []).append(summary)
    order = [label for label in first if label in groups]
    return {label: groups[label] for label in [*order, *sorted(set(groups) - set(order))]}


def show(
    folder: Path,
    targets: Sequence[float],
    console: Console,
    title: str | None = None,
    first: Sequence[str] = (),
) -> None:
    """Print the table; write report.md, report.json and the figure into the folder."""
    groups = collect(folder, first)
    targets = targets or default_targets(groups)
    console.print(compare_table(groups, targets))
    _write(folder / "report.md", markdown(groups, targets))
    values = {label: [run.to_dict() for run in runs] for label, runs in groups.items()}
    _write(folder / "report.json", json.dumps(values, indent=1))
    from fedpace.report.figures import figure  # matplotlib takes a second to import

    paths = [folder / "report.md", folder / "report.json", *figure(groups, folder / "figure", title)]
    for path in paths:
        console.print(str(path), style="cyan", soft_wrap=True)


def default_targets(groups: dict[str, list[Summary]]) -> tuple[float, ...]:
    """Two round accuracies that most runs reach: 80% and 95% of the median of their best."""
    best = sorted(
        run.best_accuracy for runs in groups.values() for run in runs if run.best_accuracy is not None
    )
    if not best:
        return ()
    middle = best[len(best) // 2]
    return tuple(sorted({round(share * middle * 20) / 20 for share in (0.8, 0.95)} - {0.0}))


def _write(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)
