"""The result of a comparison, as Python and notebooks see it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from fedpace.core.errors import JournalError, unknown
from fedpace.core.journal import JOURNAL, part_path
from fedpace.report.collection import default_targets
from fedpace.report.page.paired import PairedDifference, paired_difference
from fedpace.report.summary import Summary, chosen_metric
from fedpace.report.tables.layout import comparison_blocks
from fedpace.runs.results import shown
from fedpace.runs.results.drawing import plot_metric, report_on, show_file
from fedpace.runs.results.result import Result, open_result
from fedpace.runs.results.rows import Row, RowKind, frame_of, run_row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

ComparedRows = Literal["runs"] | RowKind


@dataclass(frozen=True, slots=True, repr=False)
class TargetTimes:
    """Seconds that a target took the runs of one label, by seed; None where it was never reached.

    mean: None unless every seed got there. difference: to the first label over seeds that both have,
    None for that label itself; its `verdict` says whether seeds can tell the two apart.
    """

    label: str
    times: Mapping[int, float | None]
    mean: float | None
    difference: PairedDifference | None

    def __repr__(self) -> str:
        reached = sum(one is not None for one in self.times.values())
        took = "not reached by all" if self.mean is None else f"{self.mean:.4g} s"
        text = f"{took} ({reached} of {len(self.times)} seeds)"
        apart = self.difference
        if apart is None or apart.mean is None:
            return f"<{text}>"
        between = "" if apart.low is None else f" [{apart.low:.3g}, {apart.high:.3g}]"
        return f"<{text}; {apart.mean:+.3g} s{between} to the first: {apart.verdict}>"


@dataclass(frozen=True, repr=False)
class ComparisonResult:
    """The outcome of a comparison: results by label, in the order of seeds.

    folder: where the runs are; failed: what went wrong with runs that are missing, by label and seed.

        found = fedpace.compare(config, policies=["timelyfl", "sync"], seeds=3)
        found.plot()
        found["timelyfl"][0].model(), found.time_to(0.8)
    """

    results: Mapping[str, Sequence[Result]]
    folder: Path
    failed: Mapping[tuple[str, int], Exception] = field(default_factory=dict)
    title: str | None = None
    targets: tuple[float, ...] = ()
    metric: str | None = None

    def __getitem__(self, label: str) -> Sequence[Result]:
        """The results of a label, in the order of seeds."""
        if label not in self.results:
            raise unknown("label", label, self.results)
        return self.results[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    @property
    def summaries(self) -> dict[str, list[Summary]]:
        """The numbers of the runs by label."""
        return {label: [one.summary for one in runs] for label, runs in self.results.items()}

    def time_to(self, target: float, metric: str | None = None) -> dict[str, TargetTimes]:
        """What a target took each label, and paired differences to the first one.

        metric: what the target is of, by default the main one.
        """
        found: dict[str, TargetTimes] = {}
        first: Mapping[int, float | None] | None = None
        for label, runs in self.results.items():
            times = {one.summary.seed: one.time_to(target, metric or self.metric) for one in runs}
            known = [one for one in times.values() if one is not None]
            mean = fmean(known) if len(known) == len(times) else None
            apart = None if first is None else paired_difference(times, first)
            found[label] = TargetTimes(label, times, mean, apart)
            first = times if first is None else first
        return found

    def rows(self, kind: ComparedRows = "tests") -> list[Row]:
        """Plain rows of all runs with label and seed: "runs" (one a run), or as those of a `Result`."""
        rows: list[Row] = []
        for label, runs in self.results.items():
            for one in runs:
                own = [run_row(one.summary)] if kind == "runs" else one.rows(kind)
                rows += [{"label": label, "seed": one.summary.seed, **row} for row in own]
        return rows

    def frame(self, kind: ComparedRows = "tests") -> "DataFrame":
        """The same rows as a pandas data frame; ConfigError where pandas is not installed."""
        return frame_of(self.rows(kind))

    def table(self, targets: Sequence[float] = (), width: int = 100) -> str:
        """The table that `fedpace compare` prints."""
        groups = self.summaries
        targets = tuple(targets) or self.targets or default_targets(groups, self.metric)
        console = Console(file=StringIO(), width=width)
        with console.capture() as text:
            for block in comparison_blocks(groups, targets, width, self.metric):
                console.print(block, no_wrap=True, overflow="ignore", crop=False)
        return text.get()

    def plot(self, metric: str | None = None, ax: "Axes | None" = None) -> "Axes":
        """Draw a metric of each label over time, the mean over seeds with a band; the axes."""
        return plot_metric(self.summaries, metric or self.metric, ax)

    def report(
        self,
        folder: str | Path | None = None,
        *,
        targets: Sequence[float] = (),
        metric: str | None = None,
        show: bool = False,
    ) -> Path:
        """Write the report of all runs, as `fedpace report` does; the path of its page.

        folder: by default that of the runs; show: open the page in the browser.
        """
        place = Path(folder or self.folder)
        aims = tuple(targets) or self.targets
        page = report_on(self.summaries, place, aims, self.title, metric or self.metric)
        if show:
            show_file(page)
        return page

    def _lines(self) -> tuple[list[str], list[list[str]]]:
        groups = self.summaries
        info = chosen_metric(groups, self.metric)
        name = "" if info is None else info.name
        columns = ["policy", "runs", "rounds", *([f"final {name}", f"best {name}"] if info else [])]
        rows = []
        for label, runs in groups.items():
            row = [label, str(len(runs)), f"{fmean(run.rounds for run in runs):.0f}"]
            for pick in (Summary.final, Summary.best) if info else ():
                known = [one for run in runs if (one := pick(run, name)) is not None]
                row.append("-" if not known or info is None else info.number(fmean(known)))
            rows.append(row)
        return columns, rows

    def _heading(self) -> str:
        runs = sum(map(len, self.results.values()))
        failed = f", {len(self.failed)} failed" if self.failed else ""
        return (
            f"{self.title or 'Comparison'}: {len(self)} policies, {runs} runs{failed}, means over seeds"
        )

    def __repr__(self) -> str:
        columns, rows = self._lines()
        widths = [max(map(len, one)) for one in zip(columns, *rows, strict=True)]
        lines = ["  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
                 for row in (columns, *rows)]  # fmt: skip
        return "\n".join([self._heading(), *lines])

    def _repr_html_(self) -> str:
        return shown.table_html(self._heading(), *self._lines())


def open_comparison(folder: str | Path) -> ComparisonResult:
    """The comparison of all runs below a folder, by label, as `fedpace compare` leaves them."""
    place = Path(folder)
    names = (JOURNAL, part_path(Path(JOURNAL)).name)
    found = sorted({path.parent for name in names for path in place.rglob(name)})
    if not found:
        raise JournalError(f"there is no {JOURNAL} below {place}; give the folder of a comparison")
    groups: dict[str, list[Result]] = {}
    for one in map(open_result, found):
        groups.setdefault(one.summary.label, []).append(one)
    for runs in groups.values():
        runs.sort(key=lambda run: run.summary.seed)
    title = next(iter(groups.values()))[0].journal.header.run.get("name")
    return ComparisonResult(dict(sorted(groups.items())), place, title=title)
