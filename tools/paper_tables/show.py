"""A table of a paper as Markdown, from its results."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, median, stdev

from run_workers import MACHINE_SEPARATOR

from fedpace.core.evaluation.metric import ACCURACY, MetricInfo
from fedpace.report.units import time_unit
from paper_tables.ahead import ahead_table
from paper_tables.ranges import ranges_table
from paper_tables.rows import (
    Row,
    count,
    find_row,
    metric_in,
    participation_gains,
    percent,
    ratio,
    rows_of,
)
from paper_tables.table import PaperTable, Scene, heading_of
from runs import Runs, reached


def show(table: PaperTable, runs: Runs) -> Iterator[str]:
    """All of it: tables of every study, ours against the best of the others, and what numbers are."""
    for study in table.studies:
        yield from study_lines(table, study, runs)
    yield f"\n{about(table, runs)}"


def study_lines(table: PaperTable, study: str, runs: Runs) -> Iterator[str]:
    """The tables of one study."""
    rows = {scene.name: rows_of(table, scene, study, runs) for scene in table.scenes}
    there = [scene for scene in table.scenes if any(row.runs for row in rows[scene.name])]
    if table.columns is None:
        for scene in there:
            heading = heading_of(study, scene.name)
            yield f"\n**{heading}**\n" if heading else ""
            yield from times_table(
                table, study, scene, rows[scene.name], table.says.get(heading or "all", {})
            )
    else:
        yield from column_tables(table, study, there, rows)
        yield from ranges_table(table, study, there, rows)
        yield from settings_table(table, study, there, rows)
    if table.ours == table.reference:
        return  # forms of one policy: each is told relative to it already
    yield from ahead_table(table, study, there, rows)
    if table.columns is None:
        yield from participation_table(table, study, there, rows)


# Scenes one below the other.


def _usual_time(scene: Scene, rows: Sequence[Row]) -> float:
    """The median time to a target, or to the end where none is reached."""
    runs = [run for row in rows for run in row.runs.values()]
    times = [reached(run, target) for run in runs for target in scene.targets]
    there = [time_s for time_s in times if time_s is not None]
    return median(there or [run["end_s"] for run in runs] or [1.0])


def times_table(
    table: PaperTable, study: str, scene: Scene, rows: Sequence[Row], says: Mapping[str, str]
) -> Iterator[str]:
    """Time to each target, relative to the reference, what it took, and what the paper tells."""
    unit, unit_s = time_unit(_usual_time(scene, rows))
    base, metric = find_row(rows, table.label_in(study, table.reference)), metric_in(rows)
    targets = [f"to {metric.target(target)} ({unit})" for target in scene.targets]
    best = f"best ({'%' if metric.share else metric.name})"
    some = any(row.left_out for row in rows)
    who = ["participation (%)", *(["left out (%)"] if some else []), "clients a round"]
    numbers = [best, *who, "idle (%)", "moved (GB)"]
    fair = any(run.get("fairness") for row in rows for run in row.runs.values())
    numbers += ["last (%)", "fast third (%)", "slow third (%)", "worst tenth (%)"] if fair else []
    head = ["policy", "setting", *targets, *numbers, "seeds", *(["the paper"] if says else [])]
    yield "| " + " | ".join(head) + " |"
    yield "|---|---|" + "---:|" * (len(head) - 2)
    for row in rows:
        if row.runs:
            cells = [time_text(row, base, target, unit_s) for target in scene.targets]
            rest = number_texts(row, metric, some, fair)
            texts = [row.policy, row.setting, *cells, *rest, str(len(row.runs))]
            texts += [says.get(row.policy, "")] if says else []
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


def number_texts(row: Row, metric: MetricInfo, left_out: bool, fair: bool) -> list[str]:
    """The other columns of a policy; left_out: with clients left out, fair: with their own tests."""
    moved = fmean(run["down_bytes"] + run["up_bytes"] for run in row.runs.values()) / 1e9
    best, clients = row.mean("best"), row.mean("clients")
    texts = [
        "" if best is None else percent(best) if metric.share else f"{best:.4g}",
        percent(row.mean("participation")),
        *([percent(row.left_out)] if left_out else []),
        "" if clients is None else f"{clients:.1f}",
        percent(row.mean("idle")),
        f"{moved:.2f}",
    ]
    if fair:
        kept = [run["fairness"] for run in row.runs.values() if run.get("fairness")]
        groups = [
            [one["groups"][name] for one in kept if name in one["groups"]] for name in ("fast", "slow")
        ]
        worst = [one["worst_decile"] for one in kept]
        texts.append(percent(row.mean("final")))
        texts += [percent(fmean(some) if some else None) for some in (*groups, worst)]
    return texts


# Scenes side by side.


def column_tables(
    table: PaperTable, study: str, scenes: Sequence[Scene], rows: dict[str, list[Row]]
) -> Iterator[str]:
    """A table for each value of all axes but one, which is in its columns with the axes after it."""
    first = list(table.axes).index(table.columns or "")
    for place in dict.fromkeys(map(table.place_of, scenes)):
        mine = [scene for scene in scenes if table.place_of(scene) == place]
        heading = heading_of(study, *place)
        yield f"\n**{heading}**\n" if heading else ""
        columns = " | ".join(_column(table, scene, first) for scene in mine)
        yield f"| {_what(mine[0])} | {columns} |"
        yield "|---|" + "---:|" * len(mine)
        reference = table.label_in(study, table.reference)
        for policy in table.studies[study]:
            cells = [
                cell_text(
                    scene,
                    find_row(rows[scene.name], policy),
                    find_row(rows[scene.name], reference),
                    len(table.seeds),
                )
                for scene in mine
            ]
            if any(cells):
                yield f"| {policy} | " + " | ".join(cells) + " |"
        says = table.says_of(study, mine[0])
        if says:
            yield f"\n| the paper | {columns} |"
            yield "|---|" + "---:|" * len(mine)
            for policy in says:
                texts = [table.said(study, scene, policy) for scene in mine]
                yield f"| {policy} | " + " | ".join(texts) + " |"


def settings_table(
    table: PaperTable, study: str, scenes: Sequence[Scene], rows: dict[str, list[Row]]
) -> Iterator[str]:
    """The settings that were chosen, and where."""
    places = {table.choosing_scene(scene).name: scene for scene in scenes}
    found = {name: rows[scene.name] for name, scene in places.items()}
    if not any(row.setting for some in found.values() for row in some):
        return
    yield "\n| chosen in | " + " | ".join(found) + " |"
    yield "|---|" + "---|" * len(found)
    for policy in table.studies[study]:
        chosen = [find_row(some, policy) for some in found.values()]
        if any(row and row.runs for row in chosen):
            yield f"| {policy} | " + " | ".join(row.setting if row else "" for row in chosen) + " |"


def _what(scene: Scene) -> str:
    """What the cells of a table of columns are."""
    metric = scene.config.compare.metric or ACCURACY.name
    if scene.criterion.by == "value":
        return f"last {metric}, %"
    return f"time to {ACCURACY.target(scene.targets[-1])}"


def _column(table: PaperTable, scene: Scene, first: int) -> str:
    return ", ".join(f"{axis} {scene.values[axis]}" for axis in list(table.axes)[first:])


def cell_text(scene: Scene, row: Row | None, base: Row | None, seeds: int) -> str:
    """Last value, or time to the last target: of the reference in seconds, of others relative to it."""
    if row is None or not row.runs:
        return ""
    alone = scene.criterion.by == "value" or row is base or base is None or not base.runs
    there = len(row.runs) if alone or base is None else len(row.runs.keys() & base.runs.keys())
    return _cell(scene, row, base) + _few_seeds(there, seeds)


def _few_seeds(there: int, seeds: int) -> str:
    """Say that there are fewer seeds than the table has."""
    return "" if there == seeds else f" ({count(there, 'seed')})"


def _cell(scene: Scene, row: Row, base: Row | None) -> str:
    if scene.criterion.by == "value":
        values = [100 * run["final"] for run in row.runs.values() if run["final"] is not None]
        spread = f" ± {stdev(values):.1f}" if len(values) > 1 else ""
        return f"{fmean(values):.1f}{spread}" if values else "-"
    target = scene.targets[-1]
    times = [time_s for time_s in row.times(target).values() if time_s is not None]
    missed = f" ({len(times)} of {len(row.runs)})" if len(times) < len(row.runs) else ""
    if row is base or base is None or not base.runs:
        spread = f" ± {stdev(times):.0f}" if len(times) > 1 else ""
        return f"{fmean(times):.0f}{spread} s{missed}" if times else f"-{missed}"
    return f"{ratio(row, base, target).mean}x{missed}" if times else f"-{missed}"


# Who takes part, and of what the numbers are.


def participation_table(
    table: PaperTable, study: str, scenes: Sequence[Scene], rows: dict[str, list[Row]]
) -> Iterator[str]:
    """How much more often clients take part with the reference than with others, client by client."""
    reference, lines = table.label_in(study, table.reference), []
    for scene in scenes:
        base = find_row(rows[scene.name], reference)
        for row in rows[scene.name]:
            if base is None or row is base or not (found := participation_gains(base, row)):
                continue
            place, more = f"{scene.name}, " if scene.name else "", [gain > 0 for gain in found]
            lines.append(
                f"| {place}{row.policy} | {100 * fmean(found):+.1f} | {percent(fmean(more))} |"
            )
    if lines:
        yield f"\n<details><summary>Participation: {reference} against the others</summary>\n"
        yield f"| {reference} against | participation, points | clients with a higher one, % |"
        yield "|---|---:|---:|"
        yield from lines
        yield "\n</details>"


def about(table: PaperTable, runs: Runs) -> str:
    """Of what the numbers are."""
    made = [run for by_seed in runs.values() for run in by_seed.values() if "samples" in run]
    if not made:
        return "Nothing is there yet."
    samples, seconds = sum(run["samples"] for run in made), sum(run["seconds"] for run in made)
    precisions = ", ".join(sorted({run["precision"] for run in made}))
    machines = "; ".join(
        sorted({one for run in made for one in run.get("machine", "").split(MACHINE_SEPARATOR) if one})
    )
    chosen = any(len(scene.cells) > len(table.policies) for scene in table.scenes)
    seeds = ", ".join(map(str, table.choose_seeds))
    tuned = f"Settings by {table.scenes[0].criterion.words(None)} on seeds {seeds}. " if chosen else ""
    by_time = table.scenes[0].criterion.by == "time"
    ratios = (
        f"; x: times of the policy over {table.reference}'s, geometric mean of the seeds' ratios; "
        "≥, ≤: a run that did not get there counts as long as it ran"
        f"{'; ± %: standard error of a mean over pairs' if table.columns else ''}"
    )
    there = [
        len(row.runs) == len(table.seeds)
        for study in table.studies
        for scene in table.scenes
        for row in rows_of(table, scene, study, runs)
    ]
    missing = f"{sum(there)} of {len(there)} cells have all seeds. " if not all(there) else ""
    return (
        f"Mean ± standard deviation over seeds {table.seeds[0]} to {table.seeds[-1]}"
        f"{ratios if by_time and table.reference else ''}. {tuned}{missing}{len(made)} runs, "
        f"{samples / 1e6:.0f} million samples, {precisions}, {seconds:,.0f} seconds of processes"
        f"{f' ({machines})' if machines else ''}."
    )
