"""The figure of a deadline plan: deadlines, batches, chances to reach layers, bound."""

import math
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedpace.planning.deadline_bound import missed_chances
from fedpace.planning.deadlines import DeadlinePlan
from fedpace.report.axes import log_scale
from fedpace.report.curves import thin
from fedpace.report.figures import batch_scale, plan_figure
from fedpace.report.looks import COLOURS
from fedpace.report.panels import FAINT
from fedpace.report.plans.deadline_plans import middle
from fedpace.report.units import time_unit

POINTS, USERS = 2000, 40
"""Rounds that a line is drawn through, and users that are drawn, at most."""


def draw_deadline_plan(plan: DeadlinePlan, path: Path, title: str) -> None:
    """Draw the plan to `path`, a PNG or an SVG by its name."""
    with plan_figure(path, title, _note(plan), rows=2, height=7.4) as panels:
        for draw, axes in zip((_deadlines, _batches, _layers, _bound), panels, strict=True):
            draw(axes, plan)


def drawn_layers(layers: int) -> list[int]:
    """Some near the input, where chances differ (by the spread of a Poisson number), and two others."""
    step = max(round(math.sqrt(layers) / 3), 1)
    wanted = {1, 1 + step, 1 + 2 * step, middle(layers), layers}
    return sorted(layer for layer in wanted if layer <= layers)


def _deadlines(axes: Axes, plan: DeadlinePlan) -> None:
    axes.set_title("(a) Deadline of each round")
    unit, unit_s = time_unit(float(plan.deadlines_s.max()))
    equal = plan.budget_s / plan.problem.rounds
    axes.axhline(equal / unit_s, color=FAINT, linewidth=1.2, linestyle=(0, (4, 3)))
    _line(axes, plan.deadlines_s / unit_s, COLOURS[0])
    axes.annotate(
        "equal shares of the budget",
        (1, equal / unit_s),
        xycoords=("axes fraction", "data"),
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=9,
        color=FAINT,
    )
    # Deadlines differ little beside their length; from zero they would all look equal.
    low, high = float(plan.deadlines_s.min()), float(plan.deadlines_s.max())
    room = max(0.25 * (high - low), 0.02 * high)
    axes.set_ylim((low - room) / unit_s, (high + room) / unit_s)
    _rounds(axes, plan, f"deadline ({unit})")


def _batches(axes: Axes, plan: DeadlinePlan) -> None:
    axes.set_title("(b) Batches of the users")
    speeds = np.asarray(plan.problem.users.samples_per_s, dtype=float)
    rounds = thin(np.arange(plan.problem.rounds), POINTS)
    for user in np.argsort(speeds)[thin(np.arange(len(speeds)), USERS)]:
        axes.plot(rounds + 1, plan.batches[rounds, user], color=FAINT, linewidth=0.6, alpha=0.6)
    for name, user, colour in (
        ("fastest", int(speeds.argmax()), COLOURS[0]),
        ("slowest", int(speeds.argmin()), COLOURS[1]),
    ):
        label = f"{name}: user {user}, {speeds[user]:g} samples/s"
        _line(axes, plan.batches[:, user].astype(float), colour, label)
    high = float(plan.batches.max())
    label = batch_scale(axes, float(plan.batches.min()), high, room=1.4)
    if axes.get_yscale() == "log":
        axes.set_ylim(top=5 * high)
    else:
        axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    _rounds(axes, plan, label)
    axes.legend(loc="upper right", frameon=False, fontsize=9, borderpad=0.1)


def _layers(axes: Axes, plan: DeadlinePlan) -> None:
    axes.set_title("(c) Chance that a layer is reached")
    layers = plan.problem.layers
    alone = 1 - missed_chances(plan.deadlines_s, plan.scale, layers, users=1)
    ends = {layers: f"{layers} (output)", 1: "layer 1 (input)" if layers > 1 else "layer 1"}
    for layer, colour in zip(drawn_layers(layers), COLOURS, strict=False):
        _line(axes, 100 * alone[:, layer - 1], colour, dotted=True)
        _line(axes, 100 * plan.reached[:, layer - 1], colour, ends.get(layer, f"{layer}"))
    # What is reached least is hidden by nothing.
    for number, line in enumerate(axes.get_lines()):
        line.set_zorder(3 - number / 100)
    axes.set_ylim(0, 118)
    axes.set_yticks(range(0, 101, 20))
    axes.legend(
        loc="upper left",
        ncols=5,
        frameon=False,
        fontsize=9,
        borderpad=0.1,
        handlelength=1.5,
        columnspacing=1.4,
    )
    _rounds(axes, plan, "chance (%)")


def _bound(axes: Axes, plan: DeadlinePlan) -> None:
    axes.set_title("(d) Bound on the squared distance to the optimum")
    found = plan.distances
    _line(axes, found, COLOURS[2], start=0)
    if found.min() > 0 and found.max() >= 20 * found.min():
        log_scale(axes)
    else:
        axes.set_ylim(0, 1.1 * float(found.max()))
    for place, where in ((0, "left"), (plan.problem.rounds, "right")):
        axes.annotate(
            f"{found[place]:.3g}",
            (place, found[place]),
            xytext=(0, 8),
            textcoords="offset points",
            ha=where,
            fontsize=9,
        )
    _rounds(axes, plan, "bound", "rounds done", least=0)


def _line(
    axes: Axes,
    values: np.ndarray,
    colour: str,
    label: str | None = None,
    start: int = 1,
    dotted: bool = False,
) -> None:
    rounds = thin(np.arange(len(values)), POINTS)
    axes.plot(
        rounds + start,
        values[rounds],
        color=colour,
        label=label,
        marker="o" if len(values) == 1 else "",
        linewidth=1.3 if dotted else 2.0,
        linestyle=(0, (1, 1.6)) if dotted else "solid",
    )


def _rounds(axes: Axes, plan: DeadlinePlan, unit: str, name: str = "round", least: int = 1) -> None:
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, steps=[1, 2, 5, 10]))
    axes.set_xlim(least - 0.02 * plan.problem.rounds, 1.02 * plan.problem.rounds + 0.02)
    axes.set(xlabel=name, ylabel=unit)


def _note(plan: DeadlinePlan) -> str:
    problem = plan.problem
    return (
        f"(b) faint: other users     (c) by somebody; dotted: by one user alone     "
        f"{len(problem.users)} users, {problem.layers} layers, {problem.rounds} rounds, "
        f"{plan.budget_s:.6g} s; batch scale m = {plan.scale:.3g}"
    )
