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

    A cell is the geometric mean of its seeds; one in which a seed did not get there is counted apart.
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
            texts += [told_range(table, mine, policy), found_range(mine, rows, policy, reference)]
        if any(texts):
            yield f"| {policy} | " + " | ".join(texts) + " |"
    yield from _lead(table, reference, scenes, rows)


def told_range(table: PaperTable, scenes: Sequence[Scene], policy: str) -> str:
    """The range that the paper tells for some cells; nothing where it tells none."""
    told = [text for scene in scenes if (text := table.said(scene, policy))]
    if not told:
        return ""
    numbers = [number for text in told if (number := _number(text)) is not None]
    return _range(numbers, len(told) - len(numbers), len(told))


def found_range(
    scenes: Sequence[Scene], rows: Mapping[str, Sequence[Row]], policy: str, reference: str
) -> str:
    """The range of what came out in some cells; nothing where nothing has run."""
    numbers, missed, there = list[float](), 0, 0
    for scene in scenes:
        row = find_row(rows[scene.name], policy)
        if row is None or not row.runs:
            continue
        there += 1
        if None in row.times(scene.targets[-1]).values():
            missed += 1
        elif (number := _times_over(scene, rows[scene.name], policy, reference).number) is not None:
            numbers.append(number)
    return _range(numbers, missed, there) if there else ""


def _range(numbers: Sequence[float], missed: int, cells: int) -> str:
    if not numbers:
        return f"misses in {missed} of {cells}"
    ends = list(dict.fromkeys(f"{one:.2g}x" for one in (min(numbers), max(numbers))))
    return " to ".join(ends) + (f", misses in {missed} of {cells}" if missed else "")


def _lead(
    table: PaperTable, reference: str, scenes: Sequence[Scene], rows: Mapping[str, Sequence[Row]]
) -> Iterator[str]:
    """In how many cells the reference is ahead of all others that the paper tells of.

    Who did not get there in a run that is shorter than the reference's time is not known to be behind.
    """
    told_of = dict.fromkeys(policy for texts in table.says.values() for policy in texts)
    rivals = [one for one in told_of if not one.startswith(f"{reference}-")]
    if not rivals:
        return
    told, cells, behind = 0, 0, []
    for scene in scenes:
        said = [_number(table.said(scene, one)) for one in rivals]
        told += all(number is None or number > 1 for number in said)
        found = [_times_over(scene, rows[scene.name], one, reference) for one in rivals]
        beaten = [one.number is not None and one.number <= 1 and not one.at_least for one in found]
        known = [one.number is not None and (one.number > 1 or not one.at_least) for one in found]
        cells += all(known) or any(beaten)
        if any(beaten):
            behind.append(scene.name)
    yield (
        f"\n{reference} is ahead of all of {', '.join(rivals)} in {cells - len(behind)} of {cells} "
        f"cells (in the paper in {told} of {len(scenes)}); not with {'; '.join(behind) or 'none'}."
    )


def _times_over(scene: Scene, rows: Sequence[Row], policy: str, reference: str) -> Ratio:
    """A policy's time over the reference's in a cell, which may be a bound, or not known."""
    row, base = find_row(rows, policy), find_row(rows, reference)
    return Ratio(()) if row is None or base is None else ratio(row, base, scene.targets[-1])


def _number(text: str) -> float | None:
    """A ratio as a paper's table has it; None where it was not reached."""
    return float(text.removesuffix("x")) if text.endswith("x") else None
