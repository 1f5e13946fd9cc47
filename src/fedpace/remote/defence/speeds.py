"""Speeds that clients report, held against the times that are seen."""

from msgspec.structs import replace

from fedpace.core.commands import Probe, Train
from fedpace.core.events import Arrived, Profiled, Rates

_SLOW_GRACE_S = 2.0
"""Seconds that a task may take longer for no reason of its client's."""
_QUICK_GRACE_S = 0.2
"""Seconds that a report may say more than was seen: clocks and first batches are not exact."""


def speeds_seen(
    event: Profiled | Arrived,
    rates: Rates,
    command: Probe | Train,
    seen_s: float,
    tolerance: float,
    waited: bool,
) -> Rates | None:
    """Speeds that fit the time that a task was seen to take; None where those reported do.

    command: the last on the task; seen_s: from its first order to the report; tolerance: how many times
    off is fine; waited: it may have stood for other reasons than its client's speed.
    """
    said_s = claimed_s(event, rates)
    quick = _is_whole(command) and said_s > tolerance * seen_s + _QUICK_GRACE_S
    more = isinstance(command, Train) and command.work.estimate is not None  # takes time of its own
    slow = not (waited or more) and seen_s > tolerance * said_s + _SLOW_GRACE_S
    if slow:  # whatever its transfers took, the rest was spent on training
        steps = event.result.steps if isinstance(event, Arrived) else 1
        return replace(rates, batch_s=(seen_s - rates.down_s - rates.up_s) / steps)
    return scale(rates, seen_s / max(said_s, 1e-9)) if quick else None


def claimed_s(event: Profiled | Arrived, rates: Rates) -> float:
    """Seconds that a report says its task took, where every batch went through the whole model."""
    if isinstance(event, Profiled):
        return rates.down_s + rates.batch_s + rates.latency_s
    return rates.down_s + event.result.steps * rates.batch_s + rates.up_s


def _is_whole(command: Probe | Train) -> bool:
    """True if every batch of a task goes through the whole model."""
    if isinstance(command, Probe):
        return True
    work = command.work
    return work.depth is None and work.width is None and work.stop_in is None


def scale(rates: Rates, by: float) -> Rates:
    """All of them in the same proportion."""
    return replace(
        rates,
        batch_s=rates.batch_s * by,
        down_s=rates.down_s * by,
        up_s=rates.up_s * by,
        latency_s=rates.latency_s * by,
    )
