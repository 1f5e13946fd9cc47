"""A table of a paper as Markdown, from its results."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean, stdev

from fedpace.report.units import time_unit
from paper_tables.entries import Entry
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
        if not self.values:
            return "-"
        sign = "≥ " * bool(self.at_least) + "≤ " * bool(self.at_most)
        return f"{'~ ' if self.at_least and self.at_most else sign}{geometric_mean(self.values):.2f}"

    def __str__(self) -> str:
        spread = f" ({min(self.values):.2f} to {max(self.values):.2f})" if len(self.values) > 1 else ""
        return f"{self.mean}{spread}"


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


def show(table: PaperTable, runs: Runs) -> Iterator[str]:
    """All of it: a table for every study and scene, and ours against the best of the others."""
    yield f"## {table.title}"
    for study in table.studies:
        for scene in table.scenes:
            rows = rows_of(table, scene, study, runs)
            if not any(row.runs for row in rows):
                continue
            heading = ", ".join(text for text in (study, scene.name) if text)
            yield f"\n### {heading}\n" if heading else ""
            yield from times_table(table, study, rows)
        yield from ahead_table(table, study, runs)
    yield f"\n{about(table, runs)}"


def times_table(table: PaperTable, study: str, rows: Sequence[Row]) -> Iterator[str]:
    """Time to each target, relative to the reference, and what it took."""
    unit, unit_s = time_unit(
        max((run["end_s"] for row in rows for run in row.runs.values()), default=1)
    )
    base = next((row for row in rows if row.policy == table.label_in(study, table.reference)), None)
    targets = [f"to {100 * target:g}% ({unit})" for target in table.targets]
    numbers = ["best (%)", "participation (%)", "idle (%)", "moved (GB)"]
    fair = any(run.get("fairness") for row in rows for run in row.runs.values())
    numbers += ["slow third (%)", "worst tenth (%)"] if fair else []
    head = ["policy", "setting", *targets, *numbers, "seeds"]
    yield "| " + " | ".join(head) + " |"
    yield "|---|---|" + "---:|" * (len(head) - 2)
    for row in rows:
        if row.runs:
            cells = [time_text(row, base, target, unit_s) for target in table.targets]
            texts = [row.policy, row.setting, *cells, *number_texts(row, fair), str(len(row.runs))]
            yield "| " + " | ".join(texts) + " |"


def time_text(row: Row, base: Row | None, target: float, unit_s: float) -> str:
    """Mean and spread of the times to a target, and their ratio to the reference's, paired by seed."""
    times = [time_s / unit_s for time_s in row.times(target).values() if time_s is not None]
    if not times:
        return "-"
    digits = 0 if fmean(times) >= 100 else 1 if fmean(times) >= 10 else 2
    text = f"{fmean(times):.{digits}f}" + (f" ± {stdev(times):.{digits}f}" if len(times) > 1 else "")
    if len(times) < len(row.runs):
        text += f" ({len(times)} of {len(row.runs)})"
    if base is None or base is row or not (found := ratio(row, base, target)).values:
        return text
    return f"{text}, {found.mean}x"


def number_texts(row: Row, fair: bool) -> list[str]:
    """The other columns of a policy."""
    moved = fmean(run["down_bytes"] + run["up_bytes"] for run in row.runs.values()) / 1e9
    texts = [*(percent(row.mean(name)) for name in ("best", "participation", "idle")), f"{moved:.2f}"]
    if fair:
        kept = [run["fairness"] for run in row.runs.values() if run.get("fairness")]
        slow = [one["groups"]["slow"] for one in kept if "slow" in one["groups"]]
        worst = [one["worst_decile"] for one in kept]
        texts += [percent(fmean(some) if some else None) for some in (slow, worst)]
    return texts


def percent(share: float | None) -> str:
    """A share in percent; nothing where there is none."""
    return "" if share is None else f"{100 * share:.1f}"


def ahead_table(table: PaperTable, study: str, runs: Runs) -> Iterator[str]:
    """How many times sooner ours is than the best of the others, paired by seed."""
    own = table.label_in(study, table.ours)
    lines = []
    for scene in table.scenes if own else ():
        rows = rows_of(table, scene, study, runs)
        ours = next(row for row in rows if row.policy == own)
        for target in table.targets:
            others = [row for row in rows if row is not ours and row.runs]
            best = min(others, key=lambda row: _rank(row, target), default=None)
            if best is None or not ours.runs:
                continue
            named = best.policy if any(best.times(target).values()) else "none got there"
            reference = next(
                (row for row in rows if row.policy == table.label_in(study, table.reference)), None
            )
            versus = "" if reference is None else str(ratio(reference, ours, target))
            place = f"{scene.name}, " if scene.name else ""
            lines.append(
                f"| {place}{100 * target:g}% | {named} | {ratio(best, ours, target)} | {versus} |"
            )
    if lines:
        yield f"\n| {own}, times ahead | best of the others | of it | of {table.reference} |"
        yield "|---|---|---:|---:|"
        yield from lines


def _rank(row: Row, target: float) -> tuple[int, float]:
    """Fewer misses first, then the smaller mean time, a miss counting as the length of its run."""
    times = row.times(target)
    missed = sum(time_s is None for time_s in times.values())
    return missed, fmean(row.runs[seed]["end_s"] if one is None else one for seed, one in times.items())


def about(table: PaperTable, runs: Runs) -> str:
    """Of what the numbers are."""
    made = [run for by_seed in runs.values() for run in by_seed.values() if "samples" in run]
    samples, seconds = sum(run["samples"] for run in made), sum(run["seconds"] for run in made)
    precisions = ", ".join(sorted({run["precision"] for run in made}))
    words = table.criterion.words(None) if made else ""
    return (
        f"Mean ± standard deviation over seeds {table.seeds[0]} to {table.seeds[-1]}; x: times of the "
        f"policy over {table.reference}'s, geometric mean of the seeds' ratios; ≥, ≤: a run that did "
        f"not get there counts as long as it ran. Settings by {words} on seeds "
        f"{', '.join(map(str, table.choose_seeds))}. {len(made)} runs, {samples / 1e6:.0f} million "
        f"samples, {precisions}, {seconds:,.0f} seconds of processes."
    )
