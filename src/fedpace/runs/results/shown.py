"""Runs as a person reads them in a few lines: text, and HTML for notebooks."""

from collections.abc import Sequence
from html import escape

from fedpace.report.summary import Summary, Track
from fedpace.report.units import byte_unit, time_unit

_STYLE = "text-align:left;padding:2px 12px 2px 0"
_WIDTH, _HEIGHT = 320, 90


def outcome(run: Summary) -> str:
    """How far a run came, and why it ended."""
    unit, unit_s = time_unit(run.end_s)
    clock = "virtual time" if run.clock == "virtual" else "time"
    end = run.finished or "not over yet"
    return f"{run.rounds:,} rounds in {run.end_s / unit_s:.3g} {unit} of {clock}; {end}"


def scores(run: Summary) -> str:
    """The last value of every metric, and the best of the main one."""
    parts = []
    for one in run.metrics:
        last, best = run.final(one.name), run.best(one.name)
        if last is not None:
            more = f" (best {one.number(best)})" if one == run.main and best is not None else ""
            parts.append(f"{one.text(last)}{more}")
    return ", ".join(parts) or "no model was tested"


def traffic(run: Summary) -> str:
    """Clients, tasks and bytes."""
    unit, size = byte_unit(run.moved_bytes)
    moved = f"{run.moved_bytes / size:.3g} {unit}"
    return (
        f"{len(run.participation):,} clients, {run.arrived:,} of {run.tasks:,} tasks arrived, {moved}"
    )


def result_lines(run: Summary, where: str) -> list[str]:
    """A result in four lines."""
    return [
        f"Result of {run.label}, seed {run.seed} ({where})",
        f"  {outcome(run)}",
        f"  {scores(run)}",
        f"  {traffic(run)}",
    ]


def result_html(run: Summary, where: str) -> str:
    """A result as a small table with the curve of its main metric."""
    rows = [("run", f"{run.label}, seed {run.seed}"), ("course", outcome(run))]
    rows += [("tested", scores(run)), ("work", traffic(run)), ("kept", where)]
    cells = "".join(f"<tr><th style='{_STYLE}'>{a}</th><td>{escape(b)}</td></tr>" for a, b in rows)
    return f"<table style='text-align:left'>{cells}</table>{curve_svg(run.metric())}"


def table_html(heading: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a line above it."""
    head = "".join(f"<th style='{_STYLE}'>{escape(one)}</th>" for one in columns)
    body = "".join(
        "<tr>" + "".join(f"<td style='{_STYLE}'>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    return f"<p>{escape(heading)}</p><table><tr>{head}</tr>{body}</table>"


def curve_svg(track: Track, most: int = 200) -> str:
    """A small line of values over time; nothing where fewer than two tests were made."""
    if len(track) < 2:
        return ""
    track = track[:: -(-len(track) // most)]
    begin, end = track[0][0], track[-1][0]
    low, high = min(value for _, value in track), max(value for _, value in track)
    wide, tall = _WIDTH / ((end - begin) or 1.0), _HEIGHT / ((high - low) or 1.0)
    points = " ".join(f"{(at - begin) * wide:.1f},{(high - value) * tall:.1f}" for at, value in track)
    return (
        f"<svg width='{_WIDTH}' height='{_HEIGHT + 4}' viewBox='0 -2 {_WIDTH} {_HEIGHT + 4}'>"
        f"<polyline points='{points}' fill='none' stroke='#0072B2' stroke-width='2'/></svg>"
    )
