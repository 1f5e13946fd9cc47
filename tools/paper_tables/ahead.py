"""How many times sooner ours gets to a target than the best of the others, paired by seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, geometric_mean

from paper_tables.rows import Ratio, Row, count, find_row, metric_in, ratio
from paper_tables.table import PaperTable, Scene

NOBODY = "none got there"


@dataclass(frozen=True)
class Lead:
    """Ours against the best of the others on the way to a target.

    where: a scene, or the value of a column, whose scenes are taken `together`; rival: NOBODY where
    none of the others got there; over_rival: its time over ours; over_reference: that of the table's
    reference, None over several scenes.
    """

    where: str
    target: str
    rival: str
    over_rival: Ratio
    over_reference: Ratio | None = None
    together: bool = False

    @property
    def spread(self) -> str:
        """The standard error of a mean over many pairs."""
        error = self.over_rival.error
        return f" ± {100 * error:.0f}%" if self.together and error else ""


def ahead_table(
    table: PaperTable, study: str, scenes: Sequence[Scene], rows: Mapping[str, Sequence[Row]]
) -> Iterator[str]:
    """Ours against the best of the others in every scene, and over those of a column."""
    found = [*leads(table, study, scenes, rows), *leads_by_column(table, study, scenes, rows)]
    if found:
        own = table.label_in(study, table.ours)
        yield f"\n| {own}, times ahead | best of the others | of it | of {table.reference} |"
        yield "|---|---|---:|---:|"
    for one in found:
        place = ", ".join(text for text in (one.where, one.target) if text)
        versus = "" if one.over_reference is None else f"{one.over_reference} "
        if one.together:
            place += f", all: {count(len(one.over_rival.values), 'pair')}"
        yield f"| {place} | {one.rival} | {one.over_rival}{one.spread} | {versus}|"


def leads(
    table: PaperTable, study: str, scenes: Sequence[Scene], rows: Mapping[str, Sequence[Row]]
) -> Iterator[Lead]:
    """Scene by scene, and target by target."""
    own = table.label_in(study, table.ours)
    for scene in scenes if own else ():
        here = rows[scene.name]
        ours, metric = find_row(here, own), metric_in(here)
        others = rivals(table, own, here)
        if ours is None or not ours.runs or not others or scene.criterion.by == "value":
            continue
        reference = find_row(here, table.label_in(study, table.reference))
        for target in scene.targets:
            best = min(others, key=lambda row: _rank(row, ours, target))
            yield Lead(
                scene.name,
                metric.target(target),
                best.policy if any(best.times(target).values()) else NOBODY,
                ratio(best, ours, target),
                Ratio(()) if reference is None else ratio(reference, ours, target),
            )


def leads_by_column(
    table: PaperTable, study: str, scenes: Sequence[Scene], rows: Mapping[str, Sequence[Row]]
) -> Iterator[Lead]:
    """The same over all scenes with one value of the columns: single cells are few seeds.

    Of scenes whose targets are not all the same, those that all of them have.
    """
    own = table.label_in(study, table.ours)
    timed = [scene for scene in scenes if scene.criterion.by == "time"]
    for value in table.axes[table.columns] if table.columns else ():
        mine = [scene for scene in timed if scene.values[table.columns or ""] == value]
        for target in mine[0].targets if mine else ():
            if any(target not in scene.targets for scene in mine):
                continue
            pooled: dict[str, Ratio] = {}
            for scene in mine:
                ours = find_row(rows[scene.name], own)
                for row in rivals(table, own, rows[scene.name]) if ours is not None else ():
                    known = pooled.get(row.policy, Ratio(()))
                    pooled[row.policy] = known.and_also(ratio(row, ours, target))
            most = max((len(one.values) for one in pooled.values()), default=0)
            whole = {name: one for name, one in pooled.items() if len(one.values) == most > 0}
            if whole:
                best = min(whole, key=lambda name: geometric_mean(whole[name].values))
                aim = metric_in([row for scene in mine for row in rows[scene.name]]).target(target)
                yield Lead(f"{table.columns} {value}", aim, best, whole[best], together=True)


def rivals(table: PaperTable, own: str | None, rows: Sequence[Row]) -> list[Row]:
    """The others, with the most seeds that any of them has: one lucky seed makes nobody the best."""
    others = [row for row in rows if row.policy not in {own, *table.forms} and row.runs]
    most = max((len(row.runs) for row in others), default=0)
    return [row for row in others if len(row.runs) == most]


def _rank(row: Row, ours: Row, target: float) -> tuple[int, float]:
    """Fewer misses first, then the smaller ratio to ours; where both miss it, the shorter runs."""
    missed = sum(time_s is None for time_s in row.times(target).values())
    times_ours = ratio(row, ours, target).number
    return missed, fmean(
        run["end_s"] for run in row.runs.values()
    ) if times_ours is None else times_ours
