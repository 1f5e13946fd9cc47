"""A device from what was observed of it: medians of its tasks, and the spread around them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from fedpace.fleet.fleet import BYTES_S_PER_MBPS
from fedpace.fleet.learned.observed import FEW_BATCHES, ClientObservations, TaskMeasurement

ENOUGH_TASKS = 5
"""Tasks from which on a client's own spread is known; of fewer it is taken to be everybody's."""
MOST_MBPS = 1e6
"""Of a link whose transfers took no time that could be told."""
NORMAL = 1.4826
"""Standard deviation of a normal distribution over the median distance from its median."""


@dataclass(frozen=True, slots=True)
class LearnedDevice:
    """One client as a row of a fleet file; the names are those of its columns.

    spans: when it was online, None: always; period_s: length of what was observed. tasks: that were
    measured, 0: none was, and it is taken to be as slow as what it did not finish.
    """

    client: str
    compute_s: float
    down_mbps: float
    up_mbps: float
    latency_s: float
    jitter: float
    first_batch: float
    start_s: float
    spans: tuple[tuple[float, float], ...] | None
    period_s: float
    tasks: int


def learn_devices(observed: Mapping[str, ClientObservations]) -> list[LearnedDevice]:
    """A device for each client that was given a task, where somebody has finished one."""
    measured = {name: one for name, one in observed.items() if one.times}
    if not measured:
        return []
    shared = spread(ratio for one in measured.values() for ratio in _around_median(one))
    devices = {name: _measured_device(name, one, shared) for name, one in measured.items()}
    links = list(devices.values())
    slowest = max(one.compute_s for one in links)
    return [
        devices[name] if name in devices else _unmeasured_device(name, one, links, slowest, shared)
        for name, one in observed.items()
        if one.tasks
    ]


def spread(ratios: Iterable[float]) -> float:
    """Relative spread of numbers around 1, as a standard deviation; a few wild ones do not matter."""
    distances = [abs(ratio - 1) for ratio in ratios]
    return NORMAL * median(distances) if distances else 0.0


def _measured_device(name: str, own: ClientObservations, shared: float) -> LearnedDevice:
    usual, ratios = _usual(own.times), _around_median(own)
    sample_s = median(one.sample_s for one in usual)
    known = [one.first_ratio for one in own.times if one.first_ratio is not None]
    first = median(known) if known else 1.0
    return LearnedDevice(
        name,
        sample_s,
        median(_mbps(one.down_s, one) for one in own.times),
        median(_mbps(one.up_s, one) for one in own.times),
        median(one.latency_s for one in own.times),
        spread(ratios) if len(ratios) >= ENOUGH_TASKS else shared,
        first,
        _start_s(own.times, first),
        _spans(own),
        own.length_s,
        len(usual),
    )


def _unmeasured_device(
    name: str, own: ClientObservations, others: Sequence[LearnedDevice], slowest: float, jitter: float
) -> LearnedDevice:
    """A client that finished nothing: no quicker than the slowest that did, with a usual link."""
    return LearnedDevice(
        name,
        max(own.unfinished_s, slowest),
        median(one.down_mbps for one in others),
        median(one.up_mbps for one in others),
        median(one.latency_s for one in others),
        jitter,
        median(one.first_batch for one in others),
        median(one.start_s for one in others),
        _spans(own),
        own.length_s,
        0,
    )


def _usual(times: Collection[TaskMeasurement]) -> list[TaskMeasurement]:
    """The measurements that say most about a client's batches: of many, of two, of any."""
    finished = [one for one in times if not one.first]
    for least in (FEW_BATCHES, 2, 0):
        if found := [one for one in finished if one.batches >= least]:
            return found
    return list(times)


def _around_median(own: ClientObservations) -> list[float]:
    """A client's seconds a sample over their median."""
    seconds = [one.sample_s for one in _usual(own.times)]
    usual = median(seconds)
    return [one / usual for one in seconds] if len(seconds) > 1 else []


def _start_s(times: Collection[TaskMeasurement], first: float) -> float:
    """Seconds before the first batch; of a whole task without what its first batch took longer."""
    known = [
        one.rest_s if one.first else one.rest_s - (first - 1) * one.sample_s * one.batch_samples
        for one in times
        if one.rest_s is not None
    ]
    return max(median(known), 0.0) if known else 0.0


def _mbps(seconds: float, one: TaskMeasurement) -> float:
    bytes_s = seconds - one.latency_s
    fastest = one.model_bytes / (MOST_MBPS * BYTES_S_PER_MBPS)
    return one.model_bytes / max(bytes_s, fastest) / BYTES_S_PER_MBPS


def _spans(own: ClientObservations) -> tuple[tuple[float, float], ...] | None:
    """When it was online; None for always."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(own.spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return None if merged == [(0.0, own.length_s)] else tuple(merged)
