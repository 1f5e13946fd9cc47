"""The screen: all candidates timed on the cores of this machine, and those that no other beats.

A candidate is dominated where another is no worse, within a margin, in everything that makes a model
learn, and clearly better in one thing: steps of the model an hour, clients in a step, work an hour
(samples, by the share of the model that they train), and how evenly data counts. Their order, by which
pilots are given out where not all can have one, is that of sqrt(steps an hour x work an hour) x
evenness squared x c / (c + 3), c being the clients in a step: with many steps noise is what limits,
with few of them their number, data that is left out is never learned, and a step of one client goes
where that client pulls. It is a rule of thumb.
"""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import numpy as np

from fedpace.advice.aims import say_seconds
from fedpace.advice.timing.candidates import Candidate
from fedpace.advice.timing.ground import CommonGround
from fedpace.advice.timing.measure import TimedCandidate, TimingLimits, TimingMeasures, time_candidate
from fedpace.core.host import cores, end_with_parent

TASKS = 5
"""Tasks of a slow client (of twenty, one is slower) that timing-only runs are long enough for."""
UPDATES_PER_CLIENT = 100
MOST_UPDATES, LEAST_UPDATES = 20_000, 4000
WORTH_PROCESSES = 30_000
"""Updates of all runs together from which on processes, which take a second to start, save time."""
WORSE, BETTER = 0.95, 1.2
"""Ratios: one that is no worse than this in anything, and better than that in something, dominates."""
LITTLE_BIAS = 0.05
"""Share of the weight with the wrong classes that is next to nothing."""
_UNDER_WAY: CommonGround | None = None


def timing_limits(seconds: np.ndarray) -> TimingLimits:
    """Ends of timing-only runs for clients that a task takes so long."""
    slow_s = float(np.quantile(seconds, 0.95))
    most = min(max(UPDATES_PER_CLIENT * len(seconds), LEAST_UPDATES), MOST_UPDATES)
    return TimingLimits(TASKS * slow_s, most)


def time_all(
    ground: CommonGround,
    candidates: Sequence[Candidate],
    limits: TimingLimits,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[TimedCandidate]:
    """Time all candidates, on every core where it is worth it. progress: is told how many are done."""
    at_once = min(jobs or cores(), len(candidates))
    found: dict[str, TimedCandidate] = {}

    def note(one: TimedCandidate) -> None:
        found[one.label] = one
        if progress is not None:
            progress(len(found), len(candidates))

    if at_once < 2 or limits.updates * len(candidates) < WORTH_PROCESSES:
        for candidate in candidates:
            note(time_candidate(ground, candidate, limits))
    else:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(at_once, spawn, _start_process, (ground,)) as pool:
            calls = [pool.submit(_time_here, candidate, limits) for candidate in candidates]
            try:
                for call in as_completed(calls):
                    note(call.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return [found[candidate.label] for candidate in candidates]


def undominated(timed: Sequence[TimedCandidate]) -> tuple[list[TimedCandidate], dict[str, str]]:
    """Candidates that none beats, by their order, and of each other one the label that beats it.

    Those that could not be timed, but may be trained, come last; the config's own are never left out.
    """
    known = sorted(
        (one for one in timed if one.measures is not None and one.measures.rounds), key=_order
    )
    kept: list[TimedCandidate] = []
    beaten: dict[str, str] = {}
    for one in known:
        by = next((other.label for other in kept if _dominates(other, one)), None)
        if by is None or one.candidate.given:
            kept.append(one)
        else:
            beaten[one.label] = by
    return kept, beaten


def find_late(timed: Sequence[TimedCandidate], horizon_s: float | None) -> dict[str, str]:
    """Candidates that make no model before a run of that length is over, and why, by label.

    None where that holds of all of them; the config's own are never left out.
    """
    found = {}
    for one in timed:
        if one.measures is None or one.candidate.given or horizon_s is None:
            continue
        first_s = one.measures.first_s
        if first_s is None:
            found[one.label] = f"no model in {say_seconds(one.measures.span_s)} of its clock"
        elif first_s > horizon_s:
            found[one.label] = (
                f"its first model comes after {say_seconds(first_s)}, but runs end in "
                f"{say_seconds(horizon_s)}"
            )
    return found if len(found) < sum(one.measures is not None for one in timed) else {}


def find_same(timed: Sequence[TimedCandidate]) -> dict[str, str]:
    """Candidates of a range that do here just what one before them does, and which, by label.

    Where every number is the same to its last digit, whose data counts how much included, a setting
    makes no difference, such as a deadline that nobody misses.
    """
    found: dict[str, str] = {}
    first: list[TimedCandidate] = []
    for one in timed:
        if one.measures is None or one.candidate.given:
            continue
        same = next(
            (
                other.label
                for other in first
                if other.candidate.policy == one.candidate.policy and other.measures == one.measures
            ),
            None,
        )
        if same is None:
            first.append(one)
        else:
            found[one.label] = f"it does here just what {same} does"
    return found


def promise(measures: TimingMeasures) -> float:
    """The number that candidates are ordered by before any training."""
    pace: float = np.sqrt(measures.steps_an_hour * measures.work_an_hour)
    clients = measures.clients_per_round
    return float(pace) * measures.evenness**2 * clients / (clients + 3)


def _order(one: TimedCandidate) -> float:
    return 0.0 if one.measures is None else -promise(one.measures)


def _dominates(one: TimedCandidate, other: TimedCandidate) -> bool:
    if one.measures is None or other.measures is None:
        return False
    pairs = list(zip(_virtues(one.measures), _virtues(other.measures), strict=True))
    no_worse = all(mine >= WORSE * theirs for mine, theirs in pairs)
    return no_worse and any(mine >= BETTER * theirs for mine, theirs in pairs)


def _virtues(measures: TimingMeasures) -> tuple[float, ...]:
    return (
        measures.steps_an_hour,
        measures.clients_per_round,
        measures.work_an_hour,
        1 / (1 - measures.evenness + LITTLE_BIAS),
    )


def _start_process(ground: CommonGround) -> None:
    global _UNDER_WAY
    _UNDER_WAY = ground
    end_with_parent()


def _time_here(candidate: Candidate, limits: TimingLimits) -> TimedCandidate:
    assert _UNDER_WAY is not None
    return time_candidate(_UNDER_WAY, candidate, limits)
