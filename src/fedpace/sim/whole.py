"""Tasks that train to their end: all is known of them but the time at which they begin.

Many clients are given the same work, and many devices are alike; then it is computed once.
"""

from collections.abc import Callable
from typing import NamedTuple

from fedpace.core.commands import Work
from fedpace.core.events import Rates
from fedpace.core.model import ModelProfile
from fedpace.fleet.fleet import Pace
from fedpace.sim import timeline
from fedpace.sim.timeline import Link

MOST = 4096
"""Kept at a time; where devices are of more kinds, looking for them gains nothing."""


class Whole(NamedTuple):
    """What a task comes to that nothing stops, on one kind of device. Times are seconds.

    After the download training and upload follow; depth and the others: as in core's Arrived.
    """

    download_s: float
    training_s: float
    upload_s: float
    depth: int
    steps: int
    samples: int
    up_bytes: int
    rates: Rates
    trained: int


def whole(work: Work, samples: int, pace: Pace, way: Link, model: ModelProfile) -> Whole:
    """What `timeline.carry_out` gives where nothing stops the work, whenever it begins."""
    batches = timeline.batches_of(work.batch_size, samples)
    depth = work.depth if work.depth is not None else model.depth
    steps = batches.total(work)
    trained = batches.samples_in(steps)
    return Whole(
        way.down_s,
        pace.sample_s * model.compute_share.item(depth - 1) * trained,
        way.upload_s(model.byte_share.item(depth - 1)),
        depth,
        steps,
        min(trained, samples),
        model.suffix_bytes[depth - 1],
        timeline.rates(batches, pace, way),
        trained,
    )


class Wholes:
    """What the last work comes to, by pace and samples. link: of a pace, for the whole model."""

    def __init__(self, model: ModelProfile, link: Callable[[Pace], Link]) -> None:
        self._model = model
        self._link = link
        self._work: Work | None = None
        self._known: dict[tuple[Pace, int], Whole] = {}

    def of(self, work: Work, samples: int, pace: Pace) -> Whole:
        """Computed, or computed before. The work is to be `unstopped`."""
        if work is not self._work:
            self._work, self._known = work, {}
        found = self._known.get((pace, samples))
        if found is None:
            found = whole(work, samples, pace, self._link(pace), self._model)
            if len(self._known) < MOST:
                self._known[pace, samples] = found
        return found


def unstopped(work: Work) -> bool:
    """The whole width of a model, trained to the end and sent without estimates."""
    return work.stop_at is None and work.width is None and work.estimate is None
