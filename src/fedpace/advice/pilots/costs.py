"""What pilots cost that have not been run yet, by those that have."""

from collections.abc import Mapping

from fedpace.advice.pilots.halving import PilotCost
from fedpace.advice.timing.measure import TimedCandidate


def guess_costs(
    known: Mapping[str, PilotCost], timed: Mapping[str, TimedCandidate]
) -> dict[str, PilotCost]:
    """Costs of all candidates: a straight line through the samples that the known ones train an hour.

    The first run of a process is slow to start, so that the quickest start counts for all. One that
    could not be timed is taken to cost as much as the dearest.
    """
    points = sorted((_samples(timed[label]) or 0.0, cost.hour_s) for label, cost in known.items())
    (low, low_s), (high, high_s) = points[0], points[-1]
    slope = max((high_s - low_s) / (high - low), 0.0) if high > low else 0.0
    setup_s = min(cost.setup_s for cost in known.values())
    found = {}
    for label, one in timed.items():
        samples = _samples(one)
        guess = max(low_s + slope * ((high if samples is None else samples) - low), 0.1 * low_s, 1e-6)
        found[label] = PilotCost(setup_s, known[label].hour_s if label in known else guess)
    return found


def _samples(one: TimedCandidate) -> float | None:
    return None if one.measures is None else one.measures.samples_an_hour
