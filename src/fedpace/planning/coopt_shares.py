"""Theorem 3's inner problem: batches that share what one step may cost.

    minimise  sum_i w_i / s_i   s.t.  sum_i a_i s_i <= A,  1 <= s_i <= most_i,  s_i whole

One more sample for client i gains w_i / (s_i (s_i + 1)), less each time. So handing samples out one
at a time, from s_i = 1 and always where the gain per money is largest, is optimal for what it spends;
of equal gains the first client's counts first. The order depends on nothing but the gains: samples
with a gain per money above some level are handed out, and only the level has to be found. A level x
gives s_i = floor(1/2 + sqrt(1/4 + w_i / (a_i x))), for large batches in proportion to sqrt(w_i / a_i).
Newton's method brackets the level until few samples are open, and only those are sorted.

With one price for all this is exact. With several the last samples are a knapsack: those that no
longer fit are passed over, and `slack` says how much of the sum this can have cost at most.

Differs: Algorithm 1 rounds the real shares down and hands out only the rest (lines 8, 13 to 17). This
is not always optimal: a large share may have to fall by several samples so that small ones can be
rounded up. It also lets shares fall to 0, and its line 14 forgot M_i.
"""

import math

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.planning.checks import check_columns, shown

_FEW, _TURNS = 1000, 200
_NOTHING = 1e-30
"""A client with less than this part of the largest weight gains nothing that the sum can show."""


def share_samples(
    weights: np.ndarray, costs: np.ndarray, most: np.ndarray, budget: float, level: float | None = None
) -> tuple[np.ndarray, float, float | None]:
    """Batches, slack, and the level that was found, a good guess for a similar problem.

    weights, costs: w_i and a_i, from 0; most: whole numbers from 1; budget: at least sum a_i.
    slack: the smallest sum_i w_i / s_i is at most this much below that of the batches.
    """
    _check(weights, costs, most, budget)
    return _share(weights, costs, most, float(budget), level)


def _check(weights: np.ndarray, costs: np.ndarray, most: np.ndarray, budget: float) -> None:
    check_columns(weights=weights, costs=costs, most=most)
    if not isinstance(budget, int | float) or not budget >= 0:
        raise ConfigError(f"the budget is {shown(budget)}; give a number of at least 0")
    if not len(weights):
        raise ConfigError("weights is empty; give one of each for one client or more")
    for name, values, least in (("weights", weights, 0), ("costs", costs, 0), ("most", most, 1)):
        if values.min() < least:
            raise ConfigError(f"{name} has {values.min():g}; give numbers of at least {least}")


def _share(
    weights: np.ndarray, costs: np.ndarray, most: np.ndarray, budget: float, level: float | None
) -> tuple[np.ndarray, float, float | None]:
    most = np.where(weights > _NOTHING * weights.max(), most, 1.0)
    if _sum(costs, most) <= budget or most.max() == 1:
        return most, 0.0, level
    if costs.min() == 0:
        paid = costs > 0
        most[paid], slack, level = _share(weights[paid], costs[paid], most[paid], budget, level)
        return most, slack, level
    gains = weights / costs
    sizes, level, blocked = _fill(gains, costs, np.ones(len(costs)), most, budget, level)
    left = budget - _sum(costs, sizes)
    if left < costs.min():
        return sizes, blocked * left, level
    first, slack = sizes.copy(), blocked * left
    while len(fits := np.flatnonzero((costs <= left) & (sizes < most))):
        own, least, limit = costs[fits], sizes[fits], most[fits]
        room = left + _sum(own, least)
        if _sum(own, limit) <= room:
            sizes[fits] = limit
            break
        sizes[fits], _, _ = _fill(gains[fits], own, least, limit, room, None)
        if (sizes[fits] == least).all():
            break
        left = budget - _sum(costs, sizes)
    return sizes, max(slack - _sum(weights, 1 / first - 1 / sizes), 0.0), level


def _fill(
    gains: np.ndarray,
    costs: np.ndarray,
    least: np.ndarray,
    most: np.ndarray,
    budget: float,
    level: float | None,
) -> tuple[np.ndarray, float, float]:
    """Samples in the order of their gain until one does not fit; its gain per money is the last result.

    sum a_i least_i <= budget < sum a_i most_i.
    """
    if level is None:
        level = (_sum(costs, np.sqrt(gains)) / budget) ** 2
    few, many, low, high = least, most, 0.0, math.inf
    enough, clients = max(_FEW, len(gains) // 16), len(gains)
    for turn in range(_TURNS):
        open_ = many.sum() - few.sum()
        if open_ <= enough or (turn > 8 and open_ <= 2 * clients):
            break
        sizes = _above(level, gains, least, most)
        spent = _sum(costs, sizes)
        if spent == budget:
            return sizes, level, 0.0
        movable = costs * ((sizes > least) & (sizes < most))
        # Aims a little beyond the budget, so that the other side of the bracket comes near as well.
        beyond = 4 * math.sqrt(_sum(movable, movable))
        if spent <= budget:
            few, high, aim = sizes, level, budget + beyond
        else:
            many, low, aim = sizes, level, budget - beyond
        slope = _sum(movable, sizes)  # of what is spent, by -2 log level
        change = 2 * (spent - aim) / slope if slope > 0 else math.copysign(8, spent - budget)
        level *= math.exp(min(max(change, -8), 8))
        if not low < level < high:
            level = math.sqrt(low) * math.sqrt(high)
            if not low < level < high:
                break
    open_clients = np.flatnonzero(many > few)
    numbers = (many - few)[open_clients].astype(np.int64)
    whose = np.repeat(open_clients, numbers)
    have = few[whose] + np.arange(len(whose)) - np.repeat(numbers.cumsum() - numbers, numbers)
    offered = gains[whose] / (have * (have + 1))
    order = np.argsort(-offered, kind="stable")
    paid = costs[whose[order]].cumsum()
    taken = int(np.searchsorted(paid, budget - _sum(costs, few), side="right"))
    sizes = few + np.bincount(whose[order[:taken]], minlength=clients)
    return sizes, level, float(offered[order[taken]]) if taken < len(order) else 0.0


def _above(level: float, gains: np.ndarray, least: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Batches with every sample whose gain is above the level.

    The root is off by some bits; whether the nearest whole number counts is asked of the gain itself,
    so that two levels are nested exactly and equal gains stay equal.
    """
    nearest = gains / level
    nearest += 0.25
    np.sqrt(nearest, out=nearest)
    nearest += 0.5
    np.rint(nearest, out=nearest)
    np.maximum(nearest, 2, out=nearest)
    nearest -= gains / (nearest * (nearest - 1)) <= level
    found: np.ndarray = np.minimum(np.maximum(nearest, least), most)
    return found


def _sum(one: np.ndarray, two: np.ndarray) -> float:
    """Not by BLAS: its threads cost more than they help here, and their number changes last bits."""
    return float((one * two).sum())
