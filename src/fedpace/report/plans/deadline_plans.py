"""A deadline plan for a terminal and as CSV."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from rich import box
from rich.table import Table

from fedpace.core.host import open_whole
from fedpace.planning.deadlines import DeadlinePlan, rounded_up, smallest_budget
from fedpace.report.units import decimals

ROWS = 12
"""Rounds that the table shows."""
NAMED = 5
"""Users that a warning names."""


def headline(plan: DeadlinePlan, most: int | None = None) -> str:
    """Summarise the plan in two lines. most: rounds allowed, where their number was chosen."""
    chosen = "" if most is None else f" (the best of up to {most})"
    return (
        f"{plan.problem.rounds} rounds{chosen} in {_number(plan.deadlines_s.sum())} s of a budget of "
        f"{_number(plan.budget_s)} s (at least {rounded_up(smallest_budget(plan.problem))} s)\n"
        f"batch scale m = {plan.scale:.4g}, "
        f"bound {plan.distances[0]:.4g} before and {plan.bound:.4g} after"
    )


def warnings(plan: DeadlinePlan) -> Iterator[str]:
    """Yield warnings about the plan: no progress, batches raised to one sample."""
    if plan.bound > plan.distances[0]:
        yield (
            "the bound grows, so that no progress is promised; lower the steps, raise the budget, or "
            "check the constants"
        )
    if plan.raised:
        users = plan.problem.users
        share = 1 - np.outer(1 / plan.deadlines_s, users.link_s)
        exact = plan.scale * np.asarray(users.samples_per_s) * share
        below = np.flatnonzero((exact < 1).any(axis=0)).tolist()
        names = ", ".join(map(str, below[:NAMED])) + (", ..." if len(below) > NAMED else "")
        yield (
            f"{plan.raised} of {plan.batches.size} batches were raised to one sample (user {names}): "
            f"there fewer layers are reached than predicted; a larger budget, fewer rounds or a "
            f"scale_min of about {plan.scale / exact.min():.2g} avoid it"
        )


def table(plan: DeadlinePlan) -> Table:
    """Some rounds: the first, the last and evenly between."""
    problem, layers = plan.problem, plan.problem.layers
    chances = {0: "layer 1\nreached (%)"}
    if layers > 1:
        half = f"layer {middle(layers)} of {layers}\nreached (%)"
        chances = {0: "layer 1 (input)\nreached (%)", middle(layers) - 1: half}
    shown = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    names = ["round", "step\nsize", "deadline\n(s)", "smallest\nbatch", "largest\nbatch"]
    for name in [*names, *chances.values()]:
        shown.add_column(name, justify="right")
    digits = decimals(float(plan.deadlines_s.min()))
    for t in np.unique(np.linspace(0, problem.rounds - 1, ROWS).round().astype(int)).tolist():
        shown.add_row(
            str(t + 1),
            f"{problem.steps[t]:.3g}",
            f"{plan.deadlines_s[t]:.{digits}f}",
            str(plan.batches[t].min()),
            str(plan.batches[t].max()),
            *(f"{100 * plan.reached[t, layer]:.1f}" for layer in chances),
        )
    return shown


def middle(layers: int) -> int:
    """Number of the middle layer, from 1 for the input."""
    return layers // 2 + 1


def write_csv(plan: DeadlinePlan, path: Path) -> None:
    """All rounds: their bound, and every user's batch (users from 0) and layer's chance (from 1)."""
    users, layers = range(len(plan.problem.users)), range(1, plan.problem.layers + 1)
    with open_whole(path, text=True) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            ["round", "step", "deadline_s", "bound_after"]
            + [f"batch_user_{user}" for user in users]
            + [f"reached_layer_{layer}" for layer in layers]
        )
        for t, deadline_s in enumerate(plan.deadlines_s.tolist()):
            start = [t + 1, float(plan.problem.steps[t]), deadline_s, float(plan.distances[t + 1])]
            rows.writerow(start + plan.batches[t].tolist() + plan.reached[t].tolist())


def _number(value: float) -> str:
    return f"{value:.{decimals(value)}f}"
