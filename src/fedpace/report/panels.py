"""The panels of the figure. Only figures.py uses this."""

from collections.abc import Callable, Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedpace.core.evaluation.metric import ACCURACY, MetricInfo
from fedpace.report.axes import log_scale, share_ticks
from fedpace.report.curves import (
    Curve,
    clients_curve,
    metric_curve,
    participation_histogram,
    round_up,
    thin,
)
from fedpace.report.looks import FEW_LABELS, Look, Looks
from fedpace.report.summary import Groups, Summary, Track
from fedpace.report.units import time_unit

INK, FAINT = "#333333", "#8a8a8a"
_WIDEST = 0.05
"""Share of the axis that a bar of participation may take."""


def metric_panel(axes: Axes, groups: Groups, looks: Looks, metric: MetricInfo | None) -> None:
    """A metric over time: mean over seeds, band from lowest to highest."""
    axes.set_title(f"{_title(metric)} over time")
    curves = _curves(groups, metric, lambda run: run.values)
    longest_s = max((curve[0][-1] for curve in curves.values() if curve is not None), default=0.0)
    unit, unit_s = time_unit(longest_s)
    clocks = {run.clock for runs in groups.values() for run in runs}
    what = "virtual time" if clocks == {"virtual"} else "time"
    _draw_metric(axes, curves, looks, metric, unit_s, what, unit)


def money_panel(axes: Axes, groups: Groups, looks: Looks, metric: MetricInfo | None) -> None:
    """A metric over the money that it took, drawn in the same way."""
    axes.set_title(f"{_title(metric)} over money")
    curves = _curves(groups, metric, lambda run: run.values_by_money)
    _draw_metric(axes, curves, looks, metric, 1.0, "money")


def _title(metric: MetricInfo | None) -> str:
    name = ACCURACY.name if metric is None else metric.name
    return name[:1].upper() + name[1:]


def _curves(
    groups: Groups, metric: MetricInfo | None, pick: Callable[[Summary], dict[str, Track]]
) -> dict[str, Curve | None]:
    name = "" if metric is None else metric.name
    return {
        label: metric_curve(pick(run).get(name, []) for run in runs) for label, runs in groups.items()
    }


def _draw_metric(
    axes: Axes,
    curves: Mapping[str, Curve | None],
    looks: Looks,
    metric: MetricInfo | None,
    per: float,
    what: str,
    unit: str = "",
) -> None:
    """A metric over what it took, in units of `per`; shares in percent."""
    drawn = {label: curve for label, curve in curves.items() if curve is not None}
    if metric is None or not drawn:
        _say(axes, "timing only", "no accuracy was measured")
        return
    times = 100 if metric.share else 1
    ends = [taken[-1] for taken, *_ in drawn.values() if taken[-1] > 0]
    starts = [taken[taken > 0][0] for taken, *_ in drawn.values() if (taken > 0).any()]
    # On a linear axis a policy that takes several times as much leaves the others no room.
    log = bool(ends) and max(ends) >= 3 * min(ends)
    band = 0.18 if len(drawn) <= FEW_LABELS else 0.08
    for label, (taken, mean, low, high) in drawn.items():
        look = looks[label]
        if log and not taken[-1] > 0:  # it diverged after its first test: a logarithm has no zero
            taken = np.full_like(taken, min(starts))
        if (high > low).any():
            axes.fill_between(
                taken / per,
                times * low,
                times * high,
                color=looks[label].colour,
                alpha=band,
                linewidth=0,
            )
        _line(axes, taken / per, times * mean, look)
    if log:
        log_scale(axes, "x")
        axes.set_xlim(left=min(starts) / per)
    else:
        axes.set_xlim(left=0)
    notes = ", ".join(note for note in (unit, "log scale" if log else "") if note)
    axes.set(xlabel=f"{what} ({notes})" if notes else what, ylabel=_value_label(axes, metric, drawn))


def _value_label(axes: Axes, metric: MetricInfo, drawn: Mapping[str, Curve]) -> str:
    """Scale the y axis for a metric; its label, with the direction where it is not the usual one."""
    better = "" if metric.higher_is_better else "lower is better"
    if metric.share:
        bottom, top = axes.get_ylim()
        axes.set_ylim(max(bottom, 0), min(top, 100))
        return f"test {metric.name} (%{', ' + better if better else ''})"
    least = min(float(low.min()) for _, _, low, _ in drawn.values())
    most = max(float(high.max()) for *_, high in drawn.values())
    if not metric.higher_is_better and least > 0 and most >= 50 * least:
        log_scale(axes)  # or an early model that was far off leaves the rest no room
        better += ", log scale"
    return f"test {metric.name}{' (' + better + ')' if better else ''}"


def clients_panel(axes: Axes, groups: Groups, looks: Looks) -> None:
    """Updates in each round: every round of every seed faint, their running mean strong.

    Where there are many labels the means alone: single rounds would hide them.
    """
    axes.set_title("Clients a round")
    lengths = [max(run.rounds for run in runs) for runs in groups.values()]
    lengths = [length for length in lengths if length]
    if not lengths:
        _say(axes, "no rounds", "nothing was aggregated")
        return
    highest = 0
    for label, runs in groups.items():
        for run in runs if len(groups) <= FEW_LABELS else ():
            rounds = thin(np.arange(run.rounds), 2000)
            values = np.array(run.clients_per_round, dtype=float)[rounds]
            axes.plot(rounds + 1, values, color=looks[label].colour, linewidth=0.7, alpha=0.22)
    for label, runs in groups.items():
        mean = clients_curve(runs)
        if len(mean):
            rounds = thin(np.arange(len(mean)), 2000)
            _line(axes, rounds + 1, mean[rounds], looks[label])
            highest = max(highest, *(max(run.clients_per_round, default=0) for run in runs))
    # On a linear axis few long rounds would be a dot beside many short ones.
    log = max(lengths) >= 15 * min(lengths)
    if log:
        log_scale(axes, "x")
    else:
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_xlim(left=0)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True, steps=[1, 2, 4, 5, 10]))
    axes.set_ylim(0, 1.1 * max(highest, 1))
    axes.set(xlabel="round (log scale)" if log else "round", ylabel="clients aggregated")


def participation_panel(axes: Axes, groups: Groups, looks: Looks) -> None:
    """One histogram above the other, the first label on top, each to its own height."""
    axes.set_title("Participation of each client")
    rates = [rate for runs in groups.values() for run in runs for rate in run.participation.values()]
    highest = round_up(max(rates, default=0.0))
    end, tallest = 100 * highest, 0.68 if len(groups) <= FEW_LABELS else 0.52
    for place, (label, runs) in enumerate(reversed(list(groups.items()))):
        counts, edges, mean = participation_histogram(runs, highest)
        edges = np.minimum(edges, highest - edges[0])  # the last bin may reach beyond what can be
        heights = tallest * counts / max(counts.max(), 1)
        # Few rounds make few rates: a bar stands at each, and is not as wide as the gap to the next.
        width = np.minimum(92 * np.diff(edges), _WIDEST * 100 * highest)
        middles, look = 50 * (edges[:-1] + edges[1:]), looks[label]
        end = max(end, middles[-1])
        axes.bar(
            middles,
            heights,
            width,
            place,
            color=look.colour,
            hatch=look.hatch,
            edgecolor="white",
            linewidth=0,
        )
        axes.axhline(place, color=FAINT, linewidth=0.8)
        if mean is None:
            axes.annotate("no rounds", (0, place + 0.9), xytext=(4, 0.5), textcoords="offset points",
                          va="top", fontsize=9)  # fmt: skip
            continue
        axes.plot(
            [100 * mean] * 2, [place, place + 0.9], color=INK, linewidth=1.1, solid_capstyle="butt"
        )
        right = mean > 0.75 * highest
        axes.annotate(
            f"mean {100 * mean:.{0 if highest > 0.2 else 1 if highest > 0.02 else 2}f}%",
            (100 * mean, place + 0.9),
            xytext=(-4 if right else 4, 0.5),
            textcoords="offset points",
            ha="right" if right else "left",
            va="top",
            fontsize=9,
        )
    axes.set(xlabel="rounds that a client is part of (%)", ylabel="clients")
    if len(groups) > 1:
        axes.set_ylabel("clients (each to its own scale)")
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_xticks(share_ticks(highest))
    room = 100 * highest * (_WIDEST / 2 + 0.01)
    axes.set_xlim(-room, end + room)
    axes.set_ylim(0, len(groups))


def _line(axes: Axes, x: np.ndarray, y: np.ndarray, look: Look) -> None:
    """A line with a dot where it ends; a single point is the dot alone."""
    axes.plot(x, y, color=look.colour, linestyle=look.dash)
    axes.plot(x[-1], y[-1], look.marker, color=look.colour, markersize=5.5, clip_on=False)


def _say(axes: Axes, what: str, why: str) -> None:
    """An empty panel that says why it is empty."""
    axes.set(xticks=[], yticks=[])
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.text(0.5, 0.53, what, transform=axes.transAxes, ha="center", fontsize=15, color=FAINT)
    axes.text(0.5, 0.44, why, transform=axes.transAxes, ha="center", fontsize=10, color=FAINT)
