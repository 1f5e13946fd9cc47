"""The figure of a CoOptFL plan: the bound over tau, and the batches of the clients."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedpace.planning.coopt import CooptPlan
from fedpace.report.axes import log_scale
from fedpace.report.curves import thin
from fedpace.report.figures import batch_scale, plan_figure
from fedpace.report.looks import COLOURS
from fedpace.report.panels import FAINT
from fedpace.report.plans.coopt_plans import BoundTerms, split_bounds
from fedpace.report.plans.deadline_figures import POINTS

SINGLE = 50
"""Clients that are drawn one by one, at most; more of them are a curve."""
_WORST = 1e6
"""Bounds that exceed the smallest this many times are not drawn."""
_ABOVE = 24
"""Points between axes and title, for the legend, which would hide curves elsewhere."""


def draw_coopt_plan(plan: CooptPlan, each: Sequence[CooptPlan], path: Path, title: str) -> None:
    """Draw the plan to `path`, a PNG or an SVG by its name; `each` is the best plan for every tau."""
    with plan_figure(path, title, _note(plan), rows=1, height=4.7) as (left, right):
        _bound(left, plan, split_bounds(each))
        _batches(right, plan)


def _bound(axes: Axes, plan: CooptPlan, found: BoundTerms) -> None:
    axes.set_title(f"(a) Bound of the loss: {plan.bound:.3g} with tau = {plan.tau}", pad=_ABOVE)
    # What is far worse than the best would leave no room for the best.
    some = np.isfinite(plan.bounds) & (plan.bounds <= _WORST * plan.bound)
    taus, bounds = plan.taus[some], plan.bounds[some]
    marker = "o" if len(taus) == 1 else ""
    for name, values, colour in zip(("gap left", "drift", "noise"), found, COLOURS, strict=False):
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
            log_scale(axes)
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
    axes.set_ylabel(batch_scale(axes, float(sizes.min()), float(caps.max()), room=1.15))
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
