"""The figure of predicted against real rounds: a panel for each run."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from fedpace.report.figures import save_both, style
from fedpace.report.looks import COLOURS
from fedpace.report.panels import FAINT, INK
from fedpace.report.predictions.rounds import BAND, RoundPrediction

COLUMNS = 3
MOST_PANELS = 12
"""Runs that one figure shows, the first."""


def draw_predictions(runs: Sequence[RoundPrediction], path_stem: Path, title: str) -> list[Path]:
    """Draw the runs to `path_stem`.png and .svg; their paths."""
    shown = runs[:MOST_PANELS]
    columns = min(len(shown), COLUMNS)
    rows = math.ceil(len(shown) / columns)
    with matplotlib.rc_context(style()):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08, wspace=0.03)
        drawing = Figure(
            figsize=(max(3.9 * columns, 6.0), 3.4 * rows + 0.7), layout=layout, facecolor="white"
        )
        places = drawing.subplots(rows, columns, squeeze=False).ravel()
        for axes, run in zip(places, shown, strict=False):
            _panel(axes, run)
        for axes in places[len(shown) :]:
            axes.set_visible(False)
        lines = places[0].get_legend_handles_labels()
        drawing.legend(*lines, frameon=False, loc="outside upper right", ncols=2, fontsize=10)
        drawing.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        simulations = max(len(run.predicted) for run in shown)
        note = f"band: {BAND[0]}% to {BAND[1]}% of {simulations} simulations"
        if len(shown) < len(runs):
            note = f"the first {len(shown)} of {len(runs)} runs     {note}"
        drawing.supxlabel(note, x=0.99, ha="right", fontsize=8.5, color=FAINT)
        return save_both(drawing, path_stem)


def _panel(axes: Axes, run: RoundPrediction) -> None:
    low, middle, high = run.band()
    rounds = np.arange(1, len(middle) + 1)
    real, blue = np.arange(1, len(run.real) + 1), COLOURS[0]
    axes.fill_between(rounds, low, high, color=blue, alpha=0.18, linewidth=0)
    # A line through one round would not be seen.
    marker = "s" if len(rounds) < 3 else ""
    axes.plot(rounds, middle, color=blue, marker=marker, label="predicted")
    axes.plot(real, run.real, "o", color=COLOURS[1], markersize=4.5, label="real")
    axes.set_ylim(0, 1.15 * max(max(run.real), high.max().item()))
    axes.set_xlim(0.5, max(len(run.real), len(middle)) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("round")
    axes.set_ylabel("seconds of a round")
    axes.set_title(
        f"{run.label}: {run.real_s:.3g} s real, {run.predicted_s:.3g} s predicted ({run.error:+.0%})",
        fontsize=9,
        color=INK,
    )
