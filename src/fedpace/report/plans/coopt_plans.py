"""A CoOptFL plan for a terminal and as CSV."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich import box
from rich.table import Table

from fedpace.core.host import open_whole
from fedpace.planning.coopt import CooptPlan
from fedpace.planning.coopt_bound import bound_terms
from fedpace.report.units import decimals

ROWS = 12
"""Numbers of local steps that the table shows."""
NAMED = 5
"""Clients that a line names."""


class BoundTerms(NamedTuple):
    """The three terms of the bound (11), for every tau.

    gap: what is left of the loss before the first round; drift: of clients from each other in a round;
    noise: of the batches.
    """

    gap: np.ndarray
    drift: np.ndarray
    noise: np.ndarray


def split_bounds(each: Sequence[CooptPlan]) -> BoundTerms:
    """Split the bounds of plans for one problem with different tau into their terms."""
    problem, taus = each[0].problem, np.array([one.tau for one in each])
    together = replace(problem, constants=replace(problem.constants, divergence=0.0))
    gap, noise = bound_terms(together, taus)
    fixed, _ = bound_terms(problem, taus)
    weights = problem.clients.weights
    sums = np.array([(weights / one.batches).sum() for one in each])
    return BoundTerms(gap, fixed - gap, noise * sums)


def at_cap(plan: CooptPlan) -> tuple[np.ndarray, np.ndarray]:
    """Clients whose batches time does not let grow, and those who have no more data."""
    full = plan.batches == plan.largest
    by_data = plan.batches >= plan.problem.clients.largest
    return np.flatnonzero(full & ~by_data), np.flatnonzero(full & by_data)


def headline(plan: CooptPlan) -> str:
    """Summarise the plan in five lines."""
    clients, tau, sizes = len(plan.batches), plan.tau, plan.batches
    most = f" (the best of {len(plan.taus)})" if len(plan.taus) > 1 else ""
    excess = f", at most {plan.excess:.1g} above the smallest" if plan.excess > 0 else ""
    by_time, by_data = at_cap(plan)
    caps = "; ".join(
        f"{_clients(who)} by {what}" for who, what in ((by_time, "time"), (by_data, "data")) if len(who)
    )
    size = f"{_range(sizes)} samples" + (
        f", median {np.median(sizes):g}" if sizes.min() < sizes.max() else ""
    )
    return (
        f"tau = {tau} local step{'s' * (tau > 1)}{most}; "
        f"bound {plan.problem.constants.gap:.4g} before and {plan.bound:.4g} after"
        f"{excess}\n"
        f"{clients} batches of {size}, {sizes.sum()} together\n"
        f"at their cap: {caps or 'nobody'}\n"
        f"{_spent(plan)}"
    )


def warnings(plan: CooptPlan) -> Iterator[str]:
    """Yield warnings about the plan: broken assumptions, no progress, a limit that binds."""
    for condition in plan.problem.constants.broken():
        yield f"{condition}: the bound is a guide and no guarantee"
    if not plan.bound <= plan.problem.constants.gap:
        yield (
            "the bound grows, so that no progress is promised; lower the step, raise the budgets, or "
            "check the constants"
        )
    if plan.problem.tau_min < plan.tau == plan.problem.tau_max:
        yield f"tau is tau_max = {plan.tau}; with a larger tau_max the bound may be smaller"


def shown(plan: CooptPlan) -> list[int]:
    """Places of some tau, small ones first: the first and last, the best and those beside it."""
    places = set((np.geomspace(1, len(plan.taus), ROWS).round().astype(int) - 1).tolist())
    best = int(np.flatnonzero(plan.taus == plan.tau)[0])
    places |= {place for place in (best - 1, best, best + 1) if 0 <= place < len(plan.taus)}
    return sorted(places)


def table(plan: CooptPlan, each: Sequence[CooptPlan]) -> Table:
    """The bound over tau and what it consists of; `each` is the best plan for every tau."""
    found, places = split_bounds(each), shown(plan)
    result = Table(box=box.SIMPLE_HEAD, collapse_padding=True)
    names = ["tau", "bound", "gap left", "drift", "noise", "batches", "round\n(s)", "round\n(money)"]
    for name in names:
        result.add_column(name, justify="right")
    result.add_column("")
    digits = decimals(min(each[place].round_s for place in places))
    for place in places:
        one = each[place]
        result.add_row(
            str(one.tau),
            f"{one.bound:.3g}",
            *(f"{values[place]:.2g}" for values in found),
            _range(one.batches, "-"),
            f"{one.round_s:.{digits}f}",
            f"{one.round_money:.4g}",
            "best" if one.tau == plan.tau else "",
        )
    return result


def write_csv(plan: CooptPlan, each: Sequence[CooptPlan], path: Path) -> None:
    """A row for each tau: its bound, what a round takes, and every client's batch (clients from 0)."""
    found, clients = split_bounds(each), range(len(plan.batches))
    with open_whole(path, text=True) as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            ["tau", "best", "bound", "gap", "drift", "noise", "round_s", "round_money"]
            + [f"batch_client_{client}" for client in clients]
        )
        for one, *terms in zip(each, *map(np.ndarray.tolist, found), strict=True):
            start = [one.tau, int(one.tau == plan.tau), one.bound, *terms]
            rows.writerow([*start, one.round_s, one.round_money, *one.batches.tolist()])


def _spent(plan: CooptPlan) -> str:
    budget = plan.problem.budget
    limit_s = " (no deadline)" if budget.deadline_s is None else f" of {budget.deadline_s:g} s"
    limit = " (no limit)" if budget.money is None else f" of {budget.money:g}"
    rounds = f"in {budget.rounds} round{'s' * (budget.rounds > 1)}"
    return (
        f"time: {plan.round_s:.4g} s a round, {rounds} {plan.total_s:.5g} s{limit_s}\n"
        f"money: {plan.round_money:.4g} a round, {rounds} {plan.total_money:.5g}{limit}"
    )


def _range(sizes: np.ndarray, to: str = " to ") -> str:
    low, high = sizes.min(), sizes.max()
    return f"{low}" if low == high else f"{low}{to}{high}"


def _clients(who: np.ndarray) -> str:
    names = ", ".join(map(str, who[:NAMED].tolist())) + (", ..." if len(who) > NAMED else "")
    count = f" ({len(who)} clients)" if len(who) > NAMED else ""
    return f"client {names}{count}"
