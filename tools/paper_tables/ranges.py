"""What a paper says and what came out, over all cells that share one value of an axis.

Single cells are few seeds, and a page of prose about them would have to be written again with every
run: ranges over cells are what claims are made of.
"""

from collections.abc import Iterator, Mapping, Sequence

from paper_tables.rows import Ratio, Row, find_row, ratio
from paper_tables.table import PaperTable, Scene


def ranges_table(
    table: PaperTable, study: str, scenes: Sequence[Scene], rows: Mapping[str, Sequence[Row]]
) -> Iterator[str]:
    """Times over the reference's: the range over the cells with each value of the axis `ranges`.

    A cell is the geometric mean of its seeds. One in which at least half of them did not get there is
    counted apart, as papers do; where fewer did not, it is a bound.
    """
    reference = table.label_in(study, table.reference)
    if table.ranges is None or reference is None:
        return
    values = table.axes[table.ranges]
    yield (
        f"\n| times over {reference}'s, range over cells | "
        + " | ".join(f"{table.ranges} {value}: the paper | here" for value in values)
        + " |"
    )
    yield "|---|" + "---:|---:|" * len(values)
    for policy in table.studies[study]:
        if policy == reference:
            continue
        texts = []
        for value in values:
            mine = [scene for scene in scenes if scene.values[table.ranges] == value]
            texts += [
                told_range(table, study, mine, policy),
                found_range(mine, rows, policy, reference),
            ]
        if any(texts):
            yield f"| {policy} | " + " | ".join(texts) + " |"
    yield from _lead(table, study, reference, scenes, rows)


def told_range(table: PaperTable, study: str, scenes: Sequence[Scene], policy: str) -> str:
    """The range that the paper tells for some cells; nothing where it tells none."""
    told = [text for scene in scenes if (text := table.said(study, scene, policy))]
    if not told:
        return ""
    numbers = [Ratio((number,)) for text in told if (number := _number(text)) is not None]
    return _range(numbers, len(told) - len(numbers), len(told))


def found_range(
    scenes: Sequence[Scene], rows: Mapping[str, Sequence[Row]], policy: str, reference: str
) -> str:
    """The range of what came out in some cells; nothing where nothing has run."""
    numbers, missed, there = list[Ratio](), 0, 0
    for scene in scenes:
        row = find_row(rows[scene.name], policy)
        if row is None or not row.runs:
            continue
        there += 1
        times = list(row.times(scene.targets[-1]).values())
        over = _times_over(scene, rows[scene.name], policy, reference)
        if 2 * times.count(None) >= len(times):
            missed += 1
        elif over.values:
            numbers.append(over)
    return _range(numbers, missed, there) if there else ""


def _range(numbers: Sequence[Ratio], missed: int, cells: int) -> str:
    if not numbers:
        return f"misses in {missed} of {cells}"
    ordered = sorted(numbers, key=lambda one: one.number or 0.0)
    ends = list(
        dict.fromkeys(
            f"{one.bound}{_digits(one.number or 0.0)}x" for one in ordered[:: len(ordered) - 1 or 1]
        )
    )
    return " to ".join(ends) + (f", misses in {missed} of {cells}" if missed else "")


def _digits(number: float) -> str:
    """Two digits, or all of those before the point."""
    return f"{number:.0f}" if number >= 100 else f"{number:.2g}"


def _lead(
    table: PaperTable,
    study: str,
    reference: str,
    scenes: Sequence[Scene],
    rows: Mapping[str, Sequence[Row]],
) -> Iterator[str]:
    """In how many cells the reference is ahead of all others that the paper tells of.

    Who did not get there in a run that is shorter than the reference's time is not known to be behind.
    Labels that begin with the reference's are forms of it, and none of the others.
    """
    told_of = dict.fromkeys(policy for scene in scenes for policy in table.says_of(study, scene))
    rivals = [one for one in told_of if not one.startswith(f"{reference}-")]
    if not rivals:
        return
    told, of_paper, cells, behind = 0, 0, 0, []
    for scene in scenes:
        said = [text for one in rivals if (text := table.said(study, scene, one))]
        numbers = [_number(text) for text in said]
        of_paper += bool(said)
        told += bool(said) and all(number is None or number > 1 for number in numbers)
        found = [_times_over(scene, rows[scene.name], one, reference) for one in rivals]
        beaten = [one.number is not None and one.number <= 1 and not one.at_least for one in found]
        known = [one.number is not None and (one.number > 1 or not one.at_least) for one in found]
        cells += all(known) or any(beaten)
        if any(beaten):
            behind.append(scene.name)
    yield (
        f"\n{reference} is ahead of all of {', '.join(rivals)} in {cells - len(behind)} of {cells} "
        f"cells (in the paper in {told} of {of_paper}); not with {'; '.join(behind) or 'none'}."
    )


def _times_over(scene: Scene, rows: Sequence[Row], policy: str, reference: str) -> Ratio:
    """A policy's time over the reference's in a cell, which may be a bound, or not known."""
    row, base = find_row(rows, policy), find_row(rows, reference)
    return Ratio(()) if row is None or base is None else ratio(row, base, scene.targets[-1])


def _number(text: str) -> float | None:
    """A ratio as a paper's table has it; None where it was not reached."""
    return float(text.removesuffix("x")) if text.endswith("x") else None
