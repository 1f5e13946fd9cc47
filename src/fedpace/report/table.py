"""The table of a comparison, for a terminal or a README: one row a label.

What a target takes is a mean only when every seed got there; a mean over the lucky ones would flatter
a policy that sometimes fails, so it is shown apart, with how many they were.
"""

from collections.abc import Callable, Mapping, Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from fedpace.report.rows import ComparisonRow, MeanAndSd, TargetCost, comparison_rows
from fedpace.report.summary import Summary
from fedpace.report.units import byte_unit, decimals, time_unit

MOST_BESIDE = 4
"""Labels that an 80-column terminal shows side by side."""


def compare_table(groups: Mapping[str, Sequence[Summary]], targets: Sequence[float]) -> Table:
    """The table for a terminal: a column a label while they fit beside each other, then a row."""
    table_rows = comparison_rows(groups, targets)
    columns = _columns(table_rows, targets)
    table = Table(
        box=box.SIMPLE_HEAD,
        collapse_padding=True,
        caption=_caption(table_rows),
        caption_justify="left",
    )
    labels = [escape(row.label) for row in table_rows]
    if len(labels) <= MOST_BESIDE:
        table.add_column("")
        for label in labels:
            table.add_column(label, justify="right", overflow="fold")
        for header, cells in columns:
            table.add_row(_line(header), *map(_line, cells))
        return table
    table.add_column("policy", overflow="fold")
    for header, _ in columns:
        table.add_column(header, justify="right", overflow="fold")
    for i, label in enumerate(labels):
        table.add_row(label, *(cells[i] for _, cells in columns))
    return table


def _line(cell: str) -> str:
    return cell.replace("\n", " ")


def markdown(groups: Mapping[str, Sequence[Summary]], targets: Sequence[float]) -> str:
    """The table for a README, with its caption below."""
    table_rows = comparison_rows(groups, targets)
    columns = _columns(table_rows, targets)
    lines = [["policy", *(header for header, _ in columns)], ["---", *("---:" for _ in columns)]]
    for i, row in enumerate(table_rows):
        lines.append([row.label.replace("|", "\\|"), *(cells[i] for _, cells in columns)])
    table = "\n".join("| " + " | ".join(line).replace("\n", " ") + " |" for line in lines)
    return f"{table}\n\n{_caption(table_rows)}\n"


def _columns(table_rows: list[ComparisonRow], targets: Sequence[float]) -> list[tuple[str, list[str]]]:
    """Headers with their units, and the cells below; line breaks where they may be narrow.

    Runs without any evaluation have no columns about accuracy.
    """
    times = [r.taken.mean for row in table_rows for r in row.times if r.taken]
    unit, unit_s = time_unit(max(times, default=0.0))
    size, size_bytes = byte_unit(
        max((r.moved_bytes.mean for r in table_rows if r.moved_bytes), default=0)
    )
    costs = any(row.spent for row in table_rows)
    out: list[tuple[str, list[str]]] = []

    def column(
        header: str,
        pick: Callable[[ComparisonRow], MeanAndSd | None],
        per: float,
        spread: bool,
        most: int = 1,
    ) -> None:
        values = [pick(row) for row in table_rows]
        smallest = min((v.mean / per for v in values if v and v.mean > 0), default=1.0)
        digits = min(decimals(smallest), most)
        out.append((header, [_number(v, per, digits, spread) for v in values]))

    if any(row.best_accuracy for row in table_rows):
        for i, target in enumerate(targets):
            header = f"to {100 * target:g}%\n({unit})"
            out.append((header, _reach_cells([row.times[i] for row in table_rows], unit_s)))
        for i, target in enumerate(targets if costs else ()):
            reaches = [row.money[i] if row.money else None for row in table_rows]
            out.append((f"to {100 * target:g}%\n(money)", _reach_cells(reaches)))
        column("best\n(%)", lambda row: row.best_accuracy, 0.01, True)
        column("final\n(%)", lambda row: row.final_accuracy, 0.01, True)
    ran, ran_s = time_unit(max((r.ran_s.mean for r in table_rows if r.ran_s), default=0.0))
    column(f"ran for\n({ran})", lambda row: row.ran_s, ran_s, False)
    if costs:
        column("spent\n(money)", lambda row: row.spent, 1, False, most=3)
    column("rounds", lambda row: row.rounds, 1, False, most=0)
    column("participation\n(%)", lambda row: row.participation, 0.01, False, most=3)
    column("clients\na round", lambda row: row.clients, 1, False)
    column("idle\n(%)", lambda row: row.idle, 0.01, False)
    column(f"moved\n({size})", lambda row: row.moved_bytes, size_bytes, False, most=2)
    return out


def _reach_cells(reaches: list[TargetCost | None], per: float = 1.0) -> list[str]:
    """Cells of one target: its cost in every row, in units of `per`; None: a row without prices."""
    means = [r.taken.mean / per for r in reaches if r and r.taken and r.taken.mean > 0]
    digits = decimals(min(means, default=1.0))
    cells = []
    for reach in reaches:
        text = _number(reach.taken if reach else None, per, digits, True)
        if reach and reach.reached < reach.seeds:
            mean = f",\nmean {reach.taken.mean / per:.{digits}f}" if reach.taken else ""
            text = f"n/a\n({reach.reached}/{reach.seeds} reached{mean})"
        elif reach and reach.factor is not None and len(reaches) > 1:
            text = f"{text}\n({reach.factor:.2f}x)"
        cells.append(text)
    return cells


def _number(value: MeanAndSd | None, per: float, digits: int, spread: bool) -> str:
    if value is None:
        return "n/a"
    sd = f" ± {value.sd / per:.{digits}f}" if spread and value.sd is not None else ""
    return f"{value.mean / per:.{digits}f}{sd}"


def _caption(table_rows: list[ComparisonRow]) -> str:
    seeds = {row.seeds for row in table_rows}
    clocks = " and ".join(sorted({clock for row in table_rows for clock in row.clocks}))
    if max(seeds, default=1) == 1:
        return f"One seed; times are {clocks}."
    count = str(min(seeds)) if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
    return f"Mean ± standard deviation over {count} seeds; times are {clocks}."
