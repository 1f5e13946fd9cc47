"""Rows of a paper's table: the runs of each policy's chosen setting, and ratios between them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, geometric_mean, stdev

from fedpace.core.evaluation.metric import ACCURACY, MetricInfo
from paper_tables.entries import LEAST_KEPT, MOST_POINTS, Entry, metric_of
from paper_tables.schedule import choose, stands_for
from paper_tables.table import PaperTable, Scene
from runs import Runs, reached


@dataclass(frozen=True)
class Row:
    """The runs of a policy in a scene: those of its chosen setting on the table's seeds, by seed."""

    policy: str
    label: str | None
    setting: str
    runs: Mapping[int, Entry]

    def times(self, target: float) -> dict[int, float | None]:
        """Seconds to a target by seed; None for never."""
        return {seed: reached(run, target) for seed, run in self.runs.items()}

    def mean(self, name: str) -> float | None:
        """Mean of a number over the seeds that have it."""
        values = [run[name] for run in self.runs.values() if run.get(name) is not None]
        return fmean(values) if values else None

    @property
    def whole(self) -> bool:
        """Tell if the curves of all seeds have every test: longer ones are kept thinned."""
        return all(len(run["times"]) < MOST_POINTS for run in self.runs.values())

    def in_means(self, tests: int) -> "Row":
        """The row with the mean of each test and those before it, so many in all, in its place."""
        return replace(self, runs={seed: _in_means(run, tests) for seed, run in self.runs.items()})

    @property
    def left_out(self) -> float | None:
        """Share of the clients that were part of no round, mean over the seeds that tell."""
        told = [left_out_of(run) for run in self.runs.values()]
        known = [share for share in told if share is not None]
        return fmean(known) if known else None


@dataclass(frozen=True)
class Ratio:
    """Times of one policy over those of another, seed by seed.

    at_least, at_most: seeds in which the first or the second never came to the target, and counts as
    long as its run; where neither did, a seed is left out.
    """

    values: tuple[float, ...]
    at_least: int = 0
    at_most: int = 0

    @property
    def mean(self) -> str:
        """Geometric mean, with a sign where it is a bound."""
        return f"{self.bound}{_decimals(geometric_mean(self.values))}" if self.values else "-"

    @property
    def bound(self) -> str:
        """The sign of a mean that is a bound."""
        if self.at_least and self.at_most:
            return "~ "
        return "≥ " * bool(self.at_least) + "≤ " * bool(self.at_most)

    @property
    def number(self) -> float | None:
        """Geometric mean, also where it is a bound; None where there is none."""
        return geometric_mean(self.values) if self.values else None

    @property
    def error(self) -> float | None:
        """Standard error of the mean, as a share of it; None of fewer than two."""
        logs = [math.log(value) for value in self.values]
        return math.expm1(stdev(logs) / math.sqrt(len(logs))) if len(logs) > 1 else None

    def and_also(self, other: "Ratio") -> "Ratio":
        """These and others."""
        return Ratio(
            self.values + other.values, self.at_least + other.at_least, self.at_most + other.at_most
        )

    def __str__(self) -> str:
        if len(self.values) < 2:
            return self.mean
        return f"{self.mean} ({_decimals(min(self.values))} to {_decimals(max(self.values))})"


def _decimals(ratio: float) -> str:
    """Two decimals, or one digit where these would be zeros."""
    return f"{ratio:.2f}" if ratio >= 0.005 else f"{ratio:.1g}"


def rows_of(table: PaperTable, scene: Scene, study: str, runs: Runs) -> list[Row]:
    """The policies of a study in a scene, with the runs that are there."""
    rows = []
    for policy in table.studies[study]:
        label = choose(table, table.choosing_scene(scene), policy, runs).label
        found = {
            seed: runs[scene.key(label)][str(seed)]
            for seed in table.seeds
            if label is not None and stands_for(scene, table, label, seed, runs)
        }
        cell = None if label is None else scene.cells[label].values
        setting = ", ".join(f"{name} = {value:g}" for name, value in (cell or {}).items())
        rows.append(Row(policy, label, setting, found))
    return rows


def ratio(first: Row, second: Row, target: float) -> Ratio:
    """The first one's times over the second's, in the seeds in which one of them came to the target."""
    values, at_least, at_most = [], 0, 0
    for seed in first.runs.keys() & second.runs.keys():
        runs = first.runs[seed], second.runs[seed]
        one, other = (reached(run, target) for run in runs)
        if (one is None and other is None) or other == 0:
            continue
        at_least += one is None
        at_most += other is None
        over, under = (
            run["end_s"] if time_s is None else time_s
            for run, time_s in zip(runs, (one, other), strict=True)
        )
        values.append(over / under)
    return Ratio(tuple(values), at_least, at_most)


def _in_means(run: Entry, tests: int) -> Entry:
    values = run["values"]
    means = [fmean(values[end - tests : end]) for end in range(tests, len(values) + 1)]
    return run | {"times": run["times"][tests - 1 :], "values": means}


def participation_gains(first: Row, second: Row) -> list[float]:
    """Of every client and seed, how much larger a share of rounds it was part of with the first."""
    gains: list[float] = []
    for seed in first.runs.keys() & second.runs.keys():
        shares = [row.runs[seed].get("participations", []) for row in (first, second)]
        if len(shares[0]) == len(shares[1]):
            gains += [one - other for one, other in zip(*shares, strict=True)]
    return gains


def left_out_of(run: Entry) -> float | None:
    """Share of a run's clients that were part of no round; None where that was not kept.

    Older results kept participations alone, of which one in very many rounds was rounded to none.
    """
    if "left_out" in run:
        share: float | None = run["left_out"]
        return share
    shares = run.get("participations")
    if not shares or (0 in shares and run["rounds"] > 1 / LEAST_KEPT):
        return None
    return fmean(share == 0 for share in shares)


def find_row(rows: Sequence[Row], policy: str | None) -> Row | None:
    """The row of a policy."""
    return next((row for row in rows if row.policy == policy), None)


def percent(share: float | None) -> str:
    """A share in percent; nothing where there is none."""
    return "" if share is None else f"{100 * share:.1f}"


def count(number: int, what: str) -> str:
    """A number and its noun, in the plural where it is not one."""
    return f"{number} {what}{'s' * (number != 1)}"


def metric_in(rows: Sequence[Row]) -> MetricInfo:
    """The metric of some runs."""
    run = next((run for row in rows for run in row.runs.values()), None)
    return ACCURACY if run is None else metric_of(run)
