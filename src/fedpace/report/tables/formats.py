"""The table of a comparison for other programs: CSV and JSON with all digits, LaTeX, Markdown.

CSV and JSON have one row a label and the same names in both. Times are seconds, sizes bytes, shares lie
in [0, 1]; units are part of the names.
"""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from fedpace.core.errors import ConfigError, unknown
from fedpace.report.summary import Groups, chosen_metric
from fedpace.report.table import TableRow, caption, heading, markdown, measures
from fedpace.report.tables.layout import MOST_BESIDE

Format = Literal["csv", "latex", "markdown", "json"]
FORMATS: tuple[Format, ...] = get_args(Format)
_ENDINGS: dict[str, Format] = {".csv": "csv", ".tex": "latex", ".md": "markdown", ".json": "json"}
JSON_FORMAT = 1
"""Of the JSON; a later one may mean other things by the same names."""
Cell = str | int | float | None
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
}


def find_format(wanted: str | None, path: Path | None) -> Format:
    """The format that is asked for by its name, or by how the name of a file ends."""
    if wanted is not None:
        known = [one for one in FORMATS if one == wanted]
        if not known:
            raise unknown("format", wanted, FORMATS)
        return known[0]
    found = None if path is None else _ENDINGS.get(path.suffix)
    if found is None:
        raise ConfigError(
            f"{path} ends in none of {', '.join(_ENDINGS)}; say --format {'|'.join(FORMATS)}"
        )
    return found


def render_table(
    kind: Format, groups: Groups, targets: Sequence[float], metric: str | None = None
) -> str:
    """The table of runs by label as the text of a file, whose last line is whole."""
    match kind:
        case "csv":
            return _csv(groups, targets, metric)
        case "latex":
            return _latex(groups, targets, metric)
        case "markdown":
            return markdown(groups, targets, metric)
        case "json":
            return _json(groups, targets, metric)


def table_rows(
    groups: Groups, targets: Sequence[float], metric: str | None = None
) -> list[dict[str, Cell]]:
    """One row a label, with the same names in each; None where there is no number.

    NAME_sd is the deviation over seeds, where a label has several. What a target takes is a number
    where all seeds got there; NAME_reached counts those which did, NAME_mean_of_reached is their mean,
    and NAME_factor the cost over that of the first label.
    """
    found = measures(groups, targets, metric)
    several = any(len(runs) > 1 for runs in groups.values())
    rows: list[dict[str, Cell]] = []
    for place, (label, runs) in enumerate(groups.items()):
        row: dict[str, Cell] = {"policy": label, "seeds": len(runs)}
        for one in found:
            row |= dict(_values(one, place, several))
        rows.append(row)
    return rows


def _values(one: TableRow, place: int, several: bool) -> Iterator[tuple[str, Cell]]:
    if not (one.values or one.costs):
        yield one.key, one.cells[place].replace("\n", " ")
        return
    cost = one.costs[place] if one.costs else None
    value = one.values[place] if one.values else cost and cost.taken
    whole = not one.costs or (cost is not None and cost.reached == cost.seeds)
    yield one.key, value.mean if value and whole else None
    if several:
        yield f"{one.key}_sd", value.sd if value and whole else None
    if one.costs:
        yield f"{one.key}_reached", None if cost is None else cost.reached
        yield f"{one.key}_mean_of_reached", value.mean if value else None
        yield f"{one.key}_factor", None if cost is None else cost.factor


def _csv(groups: Groups, targets: Sequence[float], metric: str | None) -> str:
    rows = table_rows(groups, targets, metric)
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]) if rows else ["policy", "seeds"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _json(groups: Groups, targets: Sequence[float], metric: str | None) -> str:
    info = chosen_metric(groups, metric)
    every = [run for runs in groups.values() for run in runs]
    values = {
        "format": JSON_FORMAT,
        "metric": None if info is None else info.name,
        "targets": list(targets) if info else [],
        "clocks": sorted({run.clock for run in every}),
        "compute_times": sorted({run.speeds for run in every}),
        "rows": table_rows(groups, targets, metric),
    }
    return json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _latex(groups: Groups, targets: Sequence[float], metric: str | None) -> str:
    """A tabular of booktabs; few labels stand side by side, as they do in a terminal."""
    found = measures(groups, targets, metric)
    if len(groups) <= MOST_BESIDE:
        rows = [["", *groups], *([one.header, *one.cells] for one in found)]
    else:
        rows = [["policy", *(one.header for one in found)]]
        rows += [[label, *(m.cells[i] for m in found)] for i, label in enumerate(groups)]
    head, *body = [" & ".join(map(escape_latex, row)) + r" \\" for row in rows]
    lines = [
        f"% {heading(groups)}",
        f"% {caption(groups)}",
        r"% \usepackage{booktabs}",
        rf"\begin{{tabular}}{{l{'r' * (len(rows[0]) - 1)}}}",
        r"\toprule",
        head,
        r"\midrule",
        *body,
        r"\bottomrule",
        r"\end{tabular}",
    ]
    return "\n".join(lines) + "\n"


def escape_latex(text: str) -> str:
    """A text as LaTeX prints it, on one line."""
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))
