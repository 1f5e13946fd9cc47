"""A plan of CoOptFL as a figure: the bound over tau, and the batches of the clients."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from fedpace.planning.coopt import CooptPlan
from fedpace.report.coopt_plans import Terms, terms
from fedpace.report.curves import thin
from fedpace.report.figures import COLOURS, save, style
from fedpace.report.panels import FAINT
from fedpace.report.plan_figures import POINTS, check_name

SINGLE = 50
"""So many clients are drawn one by one, more of them as a curve."""
_WORST = 1e6
"""No bound that is as many times the smallest one is drawn."""
_ABOVE = 24
"""Points between axes and title, for the legend, which would hide curves elsewhere."""


def figure(plan: CooptPlan, each: Sequence[CooptPlan], path: Path, title: str) -> None:
    """Draw the plan to `path`, a PNG or an SVG by its name; `each` is the best plan for every tau."""
    check_name(path)
    with matplotlib.rc_context(style()):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, wspace=0.04)
        drawing = Figure(figsize=(11.6, 4.7), layout=layout, facecolor="white")
        left, right = drawing.subplots(1, 2)
        _bound(left, plan, terms(each))
        _batches(right, plan)
        drawing.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        drawing.supxlabel(_note(plan), x=0.99, ha="right", fontsize=8.5, color=FAINT)
        save(drawing, path.with_suffix(""), path.suffix[1:])


def _bound(axes: Axes, plan: CooptPlan, found: Terms) -> None:
    axes.set_title(f"(a) Bound of the loss: {plan.bound:.3g} with tau = {plan.tau}", pad=_ABOVE)
    # What is far worse than the best would leave no room for the best.
    some = np.isfinite(plan.bounds) & (plan.bounds <= _WORST * plan.bound)
    taus, bounds = plan.taus[some], plan.bounds[some]
    marker = "o" if len(taus) == 1 else ""
    for name, values, colour in (
        ("gap left", found.gap, COLOURS[0]),
        ("drift", found.drift, COLOURS[1]),
        ("noise", found.noise, COLOURS[2]),
    ):
        dashes = (0, (4, 2))
        axes.plot(
            taus, values[some], color=colour, linewidth=1.3, linestyle=dashes, marker=marker, label=name
        )
    axes.plot(taus, bounds, color="black", linewidth=2, label="bound: their sum")
    axes.plot([plan.tau], [plan.bound], "o", color="black", markersize=8)
    if len(taus):
        room, high = 0.02 * (taus[-1] - taus[0]) + 0.3, float(bounds.max())
        axes.set_xlim(taus[0] - room, taus[-1] + room)
        if high >= 20 * plan.bound > 0:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.set_ylim(plan.bound / 20, 3 * high)
        else:
            axes.set_ylim(0, 1.15 * high or 1.0)
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, steps=[1, 2, 5, 10], min_n_ticks=1))
    axes.set(xlabel="tau, local steps in a round", ylabel="loss above the optimum")
    _legend(axes)


def _batches(axes: Axes, plan: CooptPlan) -> None:
    axes.set_title(f"(b) Batches with tau = {plan.tau}", pad=_ABOVE)
    caps, sizes = plan.largest, plan.batches
    if len(sizes) <= SINGLE:
        clients = np.arange(len(sizes))
        axes.vlines(clients, sizes, caps, color=FAINT, linewidth=0.8)
        axes.plot(clients, caps, "_", color=COLOURS[1], markersize=12, markeredgewidth=2, label="cap")
        axes.plot(clients, sizes, "o", color=COLOURS[0], markersize=6, label="batch")
        axes.set_xlim(-0.7, len(sizes) - 0.3)
        axes.set_xlabel("client")
        axes.xaxis.set_major_locator(MaxNLocator(13, integer=True))
    else:
        order = np.argsort(sizes, kind="stable")
        some = thin(np.arange(len(sizes)), POINTS)
        axes.plot(some + 1, caps[order][some], ".", color=COLOURS[1], markersize=2, label="cap")
        axes.plot(some + 1, sizes[order][some], color=COLOURS[0], linewidth=2, label="batch")
        axes.set_xlabel("clients, from the smallest batch to the largest")
    high = float(caps.max())
    if high >= 20 * sizes.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 1e5 else (1,)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_ylabel("samples (log scale)")
    else:
        axes.set_ylim(0, 1.15 * high)
        axes.set_ylabel("samples")
    _legend(axes)


def _legend(axes: Axes) -> None:
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 1.0), ncols=4, frameon=False, fontsize=9, borderpad=0.1
    )


def _note(plan: CooptPlan) -> str:
    budget = plan.problem.budget
    time = "no deadline" if budget.deadline_s is None else f"{budget.deadline_s:g} s"
    money = "no limit on money" if budget.money is None else f"{budget.money:g} of money"
    return (
        f"(b) cap: what time and data allow     {len(plan.batches)} clients, {budget.rounds} rounds, "
        f"{time}, {money}; a round takes {plan.round_s:.3g} s and {plan.round_money:.3g} of money"
    )
