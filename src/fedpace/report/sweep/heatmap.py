"""The figure of a sweep: how each policy did by its settings, two keys as a heat map, one as a line."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Rectangle

from fedpace.report.figures import save_both, style
from fedpace.report.looks import COLOURS
from fedpace.report.panels import FAINT, INK
from fedpace.report.sweep.record import SweepCell, SweepRecord, setting_text
from fedpace.report.sweep.table import ScoreText

_MOST_BESIDE = 3


def draw_sweep(record: SweepRecord, path_stem: Path) -> list[Path]:
    """Draw a panel for each policy of which something varies, to `path_stem`.png and .svg; their paths.

    None where nothing does. Of more than two keys, the two with most values are drawn, each place with
    the best of the others.
    """
    shown = {policy: _varying(record, policy) for policy in record.policies}
    shown = {policy: keys for policy, keys in shown.items() if keys}
    if not shown or not any(cell.score for cell in record.cells):
        return []
    columns = min(len(shown), _MOST_BESIDE)
    rows = -(-len(shown) // columns)
    with matplotlib.rc_context(style()):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.08, wspace=0.05)
        drawing = Figure(
            figsize=(max(4.1 * columns, 5.6), 3.7 * rows + 0.7), layout=layout, facecolor="white"
        )
        places = np.asarray(drawing.subplots(rows, columns, squeeze=False)).ravel()
        text = ScoreText(record)
        for axes, (policy, keys) in zip(places, shown.items(), strict=False):
            if len(keys) == 1:
                _line(axes, record, policy, keys[0], text)
            else:
                _heat_map(axes, record, policy, keys, text)
            axes.set_title(policy, loc="left")
        for axes in places[len(shown) :]:
            axes.set_visible(False)
        words = record.criterion.words(record.metric)
        drawing.suptitle(f"{words[:1].upper()}{words[1:]} ({text.unit}), where chosen", fontsize=11)
        return save_both(drawing, path_stem)


def _varying(record: SweepRecord, policy: str) -> list[str]:
    """Keys of a policy's cells with more than one value, those with most in front."""
    counts: dict[str, int] = {}
    for cell in record.cells_of(policy):
        for key in cell.values:
            counts[key] = len(_values(record, policy, key))
    return sorted((key for key, count in counts.items() if count > 1), key=lambda key: -counts[key])


def _values(record: SweepRecord, policy: str, key: str) -> list[Any]:
    found: list[Any] = []
    for cell in record.cells_of(policy):
        if key in cell.values and cell.values[key] not in found:
            found.append(cell.values[key])
    return found


def _best(record: SweepRecord, cells: Sequence[SweepCell]) -> SweepCell | None:
    """The best of some cells; one without a result where none has one."""
    sound = [cell for cell in cells if cell.score is not None and cell.score.is_sound]
    higher = record.criterion.by == "value" and (
        record.metric is None or record.metric.higher_is_better
    )

    def order(cell: SweepCell) -> tuple[float, float]:
        if cell.score is None or cell.score.mean is None:
            return 0.0, 0.0
        return cell.score.missed, -cell.score.mean if higher else cell.score.mean

    return min(sound, key=order) if sound else next(iter(cells), None)


def _heat_map(
    axes: Axes, record: SweepRecord, policy: str, keys: Sequence[str], text: ScoreText
) -> None:
    across, up = keys[0], keys[1]
    xs, ys = _values(record, policy, across), _values(record, policy, up)
    cells = record.cells_of(policy)
    found = {
        (x, y): _best(record, [c for c in cells if c.values[across] == xs[x] and c.values[up] == ys[y]])
        for x in range(len(xs))
        for y in range(len(ys))
    }
    means = np.full((len(ys), len(xs)), np.nan)
    for (x, y), cell in found.items():
        if cell is not None and cell.score is not None and cell.score.is_sound:
            means[y, x] = cell.score.mean
    higher = record.criterion.by == "value" and (
        record.metric is None or record.metric.higher_is_better
    )
    if np.isfinite(means).any():
        # The darker the better, but not so dark that a number cannot be read.
        shades = -means if not higher else means
        low, high = float(np.nanmin(shades)), float(np.nanmax(shades))
        most = high + 0.8 * ((high - low) or 1.0)
        axes.imshow(shades, cmap="Blues", origin="lower", aspect="auto", vmin=low, vmax=most)
    else:
        axes.set_xlim(-0.5, len(xs) - 0.5)
        axes.set_ylim(-0.5, len(ys) - 0.5)
    for (x, y), cell in found.items():
        _write_cell(axes, record, policy, cell, (x, y), text)
    axes.set_xticks(range(len(xs)), [setting_text(one) for one in xs])
    axes.set_yticks(range(len(ys)), [setting_text(one) for one in ys])
    axes.grid(visible=False)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    if len(keys) > 2:
        axes.set_xlabel(f"{across} (best of {', '.join(keys[2:])})")


def _write_cell(
    axes: Axes,
    record: SweepRecord,
    policy: str,
    cell: SweepCell | None,
    place: tuple[int, int],
    text: ScoreText,
) -> None:
    """The number of a cell, or the word for what happened to it; the chosen one has a frame."""
    x, y = place
    if cell is None or cell.score is None:
        return
    score = cell.score
    if score.is_sound and score.mean is not None:
        words = text.number(score.mean) + (
            f"\n{score.missed}/{score.aims} missed" if score.missed else ""
        )
    else:
        words = "\n".join(score.faults) or "not tested"
        axes.add_patch(
            Rectangle((x - 0.5, y - 0.5), 1, 1, facecolor="#f2f2f2", edgecolor="#cccccc", hatch="///")
        )
    axes.text(x, y, words, ha="center", va="center", fontsize=8, color=INK)
    if cell.label == record.chosen.get(policy):
        frame: dict[str, Any] = {"fill": False, "edgecolor": COLOURS[1], "linewidth": 2.5, "zorder": 5}
        axes.add_patch(Rectangle((x - 0.47, y - 0.47), 0.94, 0.94, **frame))


def _line(axes: Axes, record: SweepRecord, policy: str, key: str, text: ScoreText) -> None:
    xs = _values(record, policy, key)
    for x, value in enumerate(xs):
        cell = _best(record, [one for one in record.cells_of(policy) if one.values[key] == value])
        if cell is None or cell.score is None:
            continue
        chosen = cell.label == record.chosen.get(policy)
        if cell.score.is_sound:
            points = [float(text.number(one)) for one in cell.score.values]
            axes.plot([x] * len(points), points, "o", color=FAINT, markersize=4)
            mean = float(text.number(cell.score.mean or 0.0))
            axes.plot(
                [x], [mean], "D" if chosen else "s", color=COLOURS[1 if chosen else 0], markersize=8
            )
        else:
            words = ", ".join(cell.score.faults)
            axes.text(
                x, 0.5, words, rotation=90, ha="center", va="center",
                transform=axes.get_xaxis_transform(), fontsize=8, color=INK,
            )  # fmt: skip
    axes.set_xticks(range(len(xs)), [setting_text(one) for one in xs])
    axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_xlabel(key)
    axes.set_ylabel(text.unit)
