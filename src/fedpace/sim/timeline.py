"""Timeline of one task on one device: how long it takes and how far it gets. Pure arithmetic.

Values that every task needs are named tuples: they are made in a third of a frozen dataclass's time.
"""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from fedpace.core.commands import TOLERANCE, Probe, Train, Work
from fedpace.core.events import Rates, TaskResult
from fedpace.core.model import ModelProfile
from fedpace.fleet.fleet import Pace, TaskStarts

ESTIMATE_BATCHES = 3
"""Batches whose time estimates take."""


@dataclass(frozen=True, slots=True)
class Batches:
    """Batches over a client's data: each epoch ends with a short one where they do not divide."""

    size: int
    samples: int
    per_epoch: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "per_epoch", math.ceil(self.samples / self.size))

    def total(self, work: Work) -> int:
        """Batches that the work asks for."""
        return work.steps if work.steps is not None else (work.epochs or 1) * self.per_epoch

    def samples_in(self, count: int) -> int:
        """Samples that the first `count` batches go through, epochs repeated."""
        epochs, rest = divmod(count, self.per_epoch)
        return epochs * self.samples + min(rest * self.size, self.samples)

    def sizes(self, first: int, count: int) -> np.ndarray:
        """Samples in each of `count` batches from number `first` (from 0) on."""
        numbers = np.arange(first + 1, first + count + 1) % self.per_epoch
        short = self.samples - (self.per_epoch - 1) * self.size
        return np.where(numbers == 0, short, self.size)

    def within(self, samples: float) -> int:
        """Number of whole batches that go through at most `samples` samples."""
        samples *= 1 + TOLERANCE
        epochs = int(samples // self.samples)
        rest = int((samples - epochs * self.samples) // self.size)
        return epochs * self.per_epoch + min(rest, self.per_epoch - 1)


@lru_cache(maxsize=10_000)
def batches_of(size: int, samples: int) -> Batches:
    """Batches, one object for equal numbers: many clients have as many samples, or nearly."""
    return Batches(size, samples)


class Link(NamedTuple):
    """Seconds to move the whole model and the fixed part of every message."""

    latency_s: float
    down_s: float
    up_s: float

    def upload_s(self, byte_share: float) -> float:
        return self.latency_s + (self.up_s - self.latency_s) * byte_share


class TimedResult(NamedTuple):
    """The result of a task, and when the server hears of it, in absolute seconds.

    steps 0: there is nothing to send. Of a batch that was stopped all samples count as trained.
    """

    result: TaskResult
    arrives_at: float


def result_of(
    work: Work,
    batches: Batches,
    depth: int,
    steps: int,
    done: int = 0,
    cut: bool = False,
    last_depth: int | None = None,
) -> TaskResult:
    """The result of a task that went through `steps` batches, the first `done` at full depth."""
    trained = batches.samples_in(steps)
    samples = min(trained, batches.samples)
    return TaskResult(depth, steps, done, samples, trained, cut, last_depth, work.width)


def link(pace: Pace, model_bytes: int, free_links: bool, free_download: bool) -> Link:
    """The link's times for a model of that size; free parts take none."""
    if free_links:
        return Link(0.0, 0.0, 0.0)
    down_s = pace.latency_s + model_bytes / pace.down_bytes_s
    up_s = pace.latency_s + model_bytes / pace.up_bytes_s
    return Link(pace.latency_s, 0.0 if free_download else down_s, up_s)


def rates(batches: Batches, pace: Pace, way: Link) -> Rates:
    """Rates that the client measures in this task."""
    batch_s = pace.sample_s * min(batches.size, batches.samples)
    return Rates(batch_s, batches.per_epoch, way.down_s, way.up_s, way.latency_s)


def start_delay_s(
    starts: TaskStarts, command: Probe | Train, samples: int, pace: Pace, model: ModelProfile
) -> float:
    """Seconds by which the batches of a new task begin later than its download ends."""
    share, size = 1.0, 1
    match command:
        case Probe(batch_size=size):
            pass
        case Train(work=work):
            size = work.batch_size
            share = model.compute_share.item((work.depth or model.depth) - 1)
    return starts.delay_s(command.client, pace.sample_s * share * min(size, samples))


def estimate_s(work: Work, last: int, pace: Pace, way: Link) -> float:
    """Seconds by which the estimates that work asks for make its update arrive later.

    Two gradients and the noise take three more passes over the last batch, of `last` samples, whatever
    part of the model was trained on it; a gradient that is sent takes the way of the whole model.
    """
    if work.estimate is None:
        return 0.0
    sent_s = way.up_s - way.latency_s if work.estimate == "gradient" else 0.0
    return ESTIMATE_BATCHES * pace.sample_s * last + sent_s


def progress_since_probe(
    probe: Probe,
    work: Work,
    batches: Batches,
    sample_s: float,
    computing_from: float,
    probed_at: float,
    told_at: float,
) -> tuple[int, float]:
    """Batches that a probed client has done when its work reaches it, and when it can go on.

    The batch it is in is finished if the work wants it, and left otherwise.
    """
    if not probe.go_on:
        # A probe that takes no time has trained nothing either.
        return (1 if probed_at > computing_from else 0), max(told_at, probed_at)
    so_far = (told_at - computing_from) / sample_s
    wanted = batches.total(work)
    done = max(batches.within(so_far), 1)
    if probe.max_epochs is not None:
        limit = probe.max_epochs * batches.per_epoch
        done, wanted = min(done, limit), min(wanted, limit)
    if done < wanted and batches.samples_in(done) < so_far * (1 - TOLERANCE):
        done += 1
    return done, max(told_at, computing_from + sample_s * batches.samples_in(done))


def carry_out(
    work: Work,
    batches: Batches,
    pace: Pace,
    way: Link,
    model: ModelProfile,
    done: int,
    begins_at: float,
) -> TimedResult:
    """Train `work`, of which `done` full-model batches are over, from `begins_at`; then upload.

    For layers that take steady times, and work that stops between batches if it stops at all.
    A client with a stop time does not start a batch that would end after it; it does one at least.
    Differs: TimelyFL lets the batch run out that the stop time falls into, and is late by it.
    """
    depth = work.depth if work.depth is not None else model.depth
    sample_s = pace.sample_s * model.compute_share.item(depth - 1)
    total = batches.total(work)
    steps = max(total, done)
    if work.stop_at is not None and steps > done:
        affordable = max(work.stop_at - begins_at, 0.0) / sample_s + batches.samples_in(done)
        steps = min(steps, max(batches.within(affordable), done, 1))
    before = batches.samples_in(done) if done else 0
    spent_s = sample_s * (batches.samples_in(steps) - before)
    arrives_at = begins_at + spent_s + way.upload_s(model.byte_share.item(depth - 1))
    return TimedResult(result_of(work, batches, depth, steps, done, steps < total), arrives_at)
