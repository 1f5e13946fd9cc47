"""Tasks that train to their end: all is known of them but the time at which they begin.

Many clients are given the same work, and many devices are alike; then it is computed once.
"""

from collections.abc import Callable
from typing import NamedTuple

from fedpace.core.commands import Work
from fedpace.core.events import Rates, TaskResult
from fedpace.core.model import ModelProfile
from fedpace.fleet.fleet import Pace
from fedpace.sim import timeline
from fedpace.sim.timeline import Batches, Link

MOST = 640
"""Kept at a time; where devices are of more kinds, looking for them gains nothing."""


class UninterruptedTask(NamedTuple):
    """Result and times of a task that nothing stops, on one kind of device. Times are seconds.

    After the download training and upload follow.
    """

    download_s: float
    training_s: float
    upload_s: float
    result: TaskResult
    up_bytes: int
    rates: Rates


class _WorkShare(NamedTuple):
    """The part of it that depends on the work and the samples alone.

    step_share, up_share: of a full step's time, and of the whole model's bytes.
    """

    batches: Batches
    result: TaskResult
    up_bytes: int
    step_share: float
    up_share: float


def _share(work: Work, samples: int, model: ModelProfile) -> _WorkShare:
    batches = timeline.batches_of(work.batch_size, samples)
    depth = work.depth if work.depth is not None else model.depth
    result = timeline.result_of(work, batches, depth, batches.total(work))
    return _WorkShare(
        batches,
        result,
        model.suffix_bytes[depth - 1],
        model.compute_share.item(depth - 1),
        model.byte_share.item(depth - 1),
    )


class UninterruptedTasks:
    """Cache: what the last work comes to, by pace and samples. link: of a pace, for the full model."""

    def __init__(self, model: ModelProfile, link: Callable[[Pace], Link]) -> None:
        self._model = model
        self._link = link
        self._work: Work | None = None
        self._shares: dict[int, _WorkShare] = {}
        self._known: dict[tuple[Pace, int], UninterruptedTask] = {}

    def of(self, work: Work, samples: int, pace: Pace) -> UninterruptedTask:
        """Computed, or computed before. The work is to be `unstopped`."""
        if work is not self._work:
            self._work, self._shares, self._known = work, {}, {}
        found = self._known.get((pace, samples))
        if found is None:
            share, link = self._share(work, samples), self._link(pace)
            found = UninterruptedTask(
                link.down_s,
                pace.sample_s * share.step_share * (share.result.trained or 0),
                link.upload_s(share.up_share),
                share.result,
                share.up_bytes,
                timeline.rates(share.batches, pace, link),
            )
            if len(self._known) < MOST:
                self._known[pace, samples] = found
        return found

    def _share(self, work: Work, samples: int) -> _WorkShare:
        found = self._shares.get(samples)
        if found is None:
            found = _share(work, samples, self._model)
            if len(self._shares) < MOST:
                self._shares[samples] = found
        return found


def unstopped(work: Work) -> bool:
    """The whole width of a model, trained to the end and sent without estimates."""
    return work.stop_at is None and work.width is None and work.estimate is None
