"""Numbers for the panels of the figure: curves and histograms over the runs of one policy."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fedpace.report.summary import Summary

Curve = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Times or money, then mean, lowest and highest value."""


def metric_curve(runs: Iterable[Sequence[tuple[float, float]]], most_points: int = 800) -> Curve | None:
    """A metric over seconds or money, from the pairs of every run; None where no run has any.

    At each time a run has the value of its last evaluation so far, also after its own end. The curve
    begins when every run has a value.
    """
    tracks = [np.asarray(pairs, dtype=float) for pairs in runs if pairs]
    if not tracks:
        return None
    first = max(track[0, 0] for track in tracks)
    times = np.unique(np.concatenate([track[:, 0] for track in tracks]))
    times = thin(times[times >= first], most_points)
    values = np.stack([t[np.searchsorted(t[:, 0], times, side="right") - 1, 1] for t in tracks])
    return times, values.mean(axis=0), values.min(axis=0), values.max(axis=0)


def clients_curve(runs: Sequence[Summary], smooth: float = 0.05) -> np.ndarray:
    """Running mean of clients a round, over all runs that got so far; empty without rounds.

    The window reaches `smooth` of the rounds to either side, and is cut off at both ends.
    """
    rounds = max(run.rounds for run in runs)
    total, count = np.zeros(rounds), np.zeros(rounds)
    for run in runs:
        total[: run.rounds] += run.clients_per_round
        count[: run.rounds] += 1
    reach = int(smooth * rounds)
    begin = np.maximum(np.arange(rounds) - reach, 0)
    end = np.minimum(np.arange(rounds) + reach + 1, rounds)
    sums, counts = (np.concatenate([[0.0], np.cumsum(values)]) for values in (total, count))
    mean: np.ndarray = (sums[end] - sums[begin]) / (counts[end] - counts[begin])
    return mean


def participation_histogram(
    runs: Sequence[Summary], highest: float, most_bins: int = 20
) -> tuple[np.ndarray, np.ndarray, float | None]:
    """Clients per bin, the bins' edges, and the mean rate, None without rounds; seeds are pooled.

    Rates are multiples of 1 / rounds. A bin is as wide as a number of them and its edges lie between
    two of them, so that every bin holds as many possible rates, and few rounds make no comb.
    """
    rates = np.array([rate for run in runs for rate in run.participation.values()])
    rounds = max(min(run.rounds for run in runs), 1)
    possible = int(highest * rounds) + 1
    width = math.ceil(possible / most_bins)
    edges = (np.arange(math.ceil(possible / width) + 1) * width - 0.5) / rounds
    counts, _ = np.histogram(rates, bins=edges)
    return counts, edges, float(rates.mean()) if len(rates) else None


def round_up(share: float) -> float:
    """The next 1, 2 or 5 times a power of ten, at most 1: where an axis of shares can end."""
    if not 0 < share <= 0.5:
        return 1.0
    power = 10.0 ** math.floor(math.log10(share))
    return next((step * power for step in (1, 2, 5) if step * power >= share), 10 * power)


def thin(values: np.ndarray, most: int) -> np.ndarray:
    """At most `most` of the values, evenly spaced, the first and the last among them."""
    if len(values) <= most:
        return values
    kept: np.ndarray = values[np.linspace(0, len(values) - 1, most).round().astype(int)]
    return kept
