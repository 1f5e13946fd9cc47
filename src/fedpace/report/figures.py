"""The figure of a comparison (a metric over time, clients a round, participation), and the look of all.

Where anything has a price, the metric over money as well.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D

from fedpace.core.errors import ConfigError
from fedpace.core.host import open_whole
from fedpace.report.axes import log_scale
from fedpace.report.looks import FEW_LABELS, MOST_LABELS, Looks, looks_of
from fedpace.report.panels import (
    FAINT,
    INK,
    clients_panel,
    metric_panel,
    money_panel,
    participation_panel,
)
from fedpace.report.summary import Groups, chosen_metric

Panel = Callable[[Axes, Groups, Looks], None]
_BELOW: dict[str, Any] = {"x": 0.99, "ha": "right", "fontsize": 8.5, "color": FAINT}


def draw_comparison(
    groups: Groups, path_stem: Path, title: str | None = None, metric: str | None = None
) -> list[Path]:
    """Draw the runs of each label (one run a seed) to `path_stem`.png and .svg; their paths.

    metric: what is drawn over time, by default the main one.
    """
    if not groups:
        raise ConfigError("there are no runs to draw; give at least one label with its summaries")
    for label, runs in groups.items():
        if not runs:
            raise ConfigError(f"there are no runs under {label!r}; give at least one, or leave it out")
    if len(groups) > MOST_LABELS:
        raise ConfigError(
            f"{len(groups)} labels to draw, but only {MOST_LABELS} can be told apart; "
            "draw them in several figures"
        )
    looks = looks_of(groups)
    info = chosen_metric(groups, metric)
    over_time: Panel = partial(metric_panel, metric=info)
    over_money: Panel = partial(money_panel, metric=info)
    with matplotlib.rc_context(style()):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.06, wspace=0.03)
        # Many labels need room in the legend, and one above the other for their participation.
        height = (4.5 if title else 4.2) + 0.36 * max(len(groups) - FEW_LABELS, 0)
        drawing = Figure(figsize=(11.6, height), layout=layout, facecolor="white")
        if any(run.money is not None for runs in groups.values() for run in runs):
            drawing.set_figheight(height + 3.4)
            panels = [over_time, over_money, clients_panel, participation_panel]
            places = drawing.subplots(2, 2).ravel()
        else:
            panels = [over_time, clients_panel, participation_panel]
            places = drawing.subplots(1, 3, width_ratios=(1.25, 1, 1))
        for letter, axes, panel in zip("abcd", places, panels, strict=False):
            panel(axes, groups, looks)
            axes.set_title(f"({letter}) {axes.get_title(loc='left')}")
        _legend(drawing, looks, title)
        _note(drawing, groups, len(panels))
        return save_both(drawing, path_stem)


def _legend(drawing: Figure, looks: Looks, title: str | None) -> None:
    """The one legend, with the figure's title above it."""
    size, handle = 11, 2.0 if len(looks) <= FEW_LABELS else 3.2
    # Inches: what a letter takes on the average, the line before it and the gap behind it.
    width = max(map(len, looks)) * size / 118 + (handle + 3.3) * size / 72
    drawing.legend(
        [Line2D([], [], **look.legend_line()) for look in looks.values()],
        list(looks),
        handlelength=handle,
        title=title,
        title_fontproperties=FontProperties(size=13, weight="bold"),
        alignment="left",
        loc="outside upper left",
        ncols=min(len(looks), max(int(drawing.get_figwidth() / width), 1)),
        frameon=False,
        fontsize=size,
        borderpad=0.2,
        columnspacing=2.5,
    )


def _note(drawing: Figure, groups: Groups, panels: int) -> None:
    """Explain below the figure what strong and faint lines are."""
    seeds = {len(runs) for runs in groups.values()}
    clients, tests = ("(b)", "(a)") if panels == 3 else ("(c)", "(a, b)")
    note = f"{clients} running mean{'; faint: single rounds' if len(groups) <= FEW_LABELS else ''}"
    if max(seeds) > 1 and any(run.values for runs in groups.values() for run in runs):
        count = f"{max(seeds)}" if len(seeds) == 1 else f"{min(seeds)} to {max(seeds)}"
        note = f"{tests} mean over {count} seeds; band: lowest to highest     {note}"
    drawing.supxlabel(note, **_BELOW)


def check_figure_name(path: Path) -> None:
    """ConfigError unless a figure of that name can be written."""
    if path.suffix not in (".png", ".svg"):
        raise ConfigError(f"the figure is to be {path}; give a name that ends in .png or .svg")


@contextmanager
def plan_figure(
    path: Path, title: str, note: str, rows: int, height: float
) -> Iterator[tuple[Axes, ...]]:
    """Panels of a plan in rows of two; what is drawn on them is written to `path`, a PNG or an SVG."""
    check_figure_name(path)
    with matplotlib.rc_context(style()):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, wspace=0.04, hspace=0.06)
        drawing = Figure(figsize=(11.6, height), layout=layout, facecolor="white")
        yield tuple(drawing.subplots(rows, 2).ravel())
        drawing.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        drawing.supxlabel(note, **_BELOW)
        save(drawing, path.with_suffix(""), path.suffix[1:])


def batch_scale(axes: Axes, smallest: float, largest: float, room: float) -> str:
    """Scale the y axis for batch sizes, logarithmic where they differ much; its label.

    room: the end of a linear axis, as a multiple of the largest batch.
    """
    if largest < 20 * smallest:
        axes.set_ylim(0, room * largest)
        return "samples"
    log_scale(axes)
    return "samples (log scale)"


def save_both(drawing: Figure, path_stem: Path) -> list[Path]:
    """Write a figure to `path_stem`.png and .svg; their paths. Its layout engine is gone after."""
    first = save(drawing, path_stem, "png")
    drawing.set_layout_engine()  # it is laid out: to do it again takes as long as to draw
    return [first, save(drawing, path_stem, "svg")]


def save(drawing: Figure, path_stem: Path, kind: str) -> Path:
    """Write a figure as a PNG or an SVG, whole, and return its path."""
    path = path_stem.with_name(f"{path_stem.name}.{kind}")
    with open_whole(path) as file:
        # No date: the same runs give the same bytes.
        drawing.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return path


def style() -> dict[Any, Any]:
    """Settings of matplotlib while the figure is drawn."""
    return {
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": INK,
        "axes.edgecolor": FAINT,
        "axes.labelcolor": INK,
        "axes.linewidth": 0.8,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.titlepad": 10,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#e6e6e6",
        "grid.linewidth": 0.8,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
        "xtick.labelcolor": INK,
        "ytick.labelcolor": INK,
        "lines.linewidth": 2.0,
        "lines.solid_capstyle": "round",
        # A label is text, also when it has a dollar sign.
        "text.parse_math": False,
        # Names of elements in the SVG are made from this, and not at random.
        "svg.hashsalt": "fedpace",
        # `save_both` lays out once.
        "figure.autolayout": False,
        "figure.constrained_layout.use": False,
    }
