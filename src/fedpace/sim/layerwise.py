"""Batches gone through layer by layer: where a stop inside one falls, and layer times that vary.

A batch is its forward pass and then the backward pass of each layer, from the output to the input.
Pure arithmetic, with a generator that belongs to the task.
"""

import math
from dataclasses import dataclass

import numpy as np

from fedpace.core.commands import TOLERANCE, Work
from fedpace.core.model import ModelProfile
from fedpace.fleet.fleet import Floats, Pace
from fedpace.sim import timeline
from fedpace.sim.timeline import Batches, Link, TimedResult

BLOCK = 128
"""Batches looked at in one go; results do not depend on it."""


@dataclass(frozen=True, slots=True)
class Reached:
    """Progress of a client at its stop time; seconds count from where it begins.

    batches: whole ones, what was done before included; layers: done in the batch after them;
    done_s: when the last whole batch is over; next_s: when the one after it would be.
    """

    batches: int
    layers: int
    done_s: float
    next_s: float = math.inf


def costs(model: ModelProfile) -> Floats:
    """Shares of a step's parts: the forward pass, then each layer from the output."""
    forward = sum(layer.forward for layer in model.layers)
    parts = np.array([forward, *(layer.backward for layer in reversed(model.layers))], dtype=np.float64)
    return parts / float(parts.sum())


def reach(
    model: ModelProfile,
    depth: int,
    sample_s: float,
    batches: Batches,
    done: int,
    total: int,
    stop_s: float,
    noise: np.random.Generator | None,
) -> Reached:
    """Train the last `depth` layers on batches `done` to `total`, those that are over by stop_s.

    noise: multiplies each layer's time by an exponential number of mean 1. Numbers are drawn batch by
    batch, for all layers of the model: which one a layer gets depends neither on how many layers are
    trained nor on how far one looks ahead.
    """
    parts, ended_s = costs(model)[: 1 + depth], 0.0
    while done < total:
        count = min(total - done, BLOCK)
        with np.errstate(over="ignore", invalid="ignore"):
            times = sample_s * np.outer(batches.sizes(done, count), parts)
            if noise is not None:
                times[:, 1:] *= noise.standard_exponential((count, model.depth))[:, :depth]
            # One running sum over all blocks, so that rounding does not depend on them either.
            times[0, 0] += ended_s
            ends = times.ravel().cumsum().reshape(times.shape)
        late = np.flatnonzero(ends[:, -1] > stop_s)
        if len(late):
            row = int(late[0])
            in_time = int(np.count_nonzero(ends[row, 1:] <= stop_s))
            done_s = float(ends[row - 1, -1]) if row else ended_s
            return Reached(done + row, in_time, done_s, float(ends[row, -1]))
        done, ended_s = done + count, float(ends[-1, -1])
    return Reached(done, 0, ended_s)


def carry_out(
    work: Work,
    batches: Batches,
    pace: Pace,
    way: Link,
    model: ModelProfile,
    done: int,
    begins_at: float,
    noise: np.random.Generator | None,
) -> TimedResult:
    """As `timeline.carry_out`, for work that stops in a layer and for layers whose times vary.

    A client that is stopped in a layer sends, at its stop time, the layers that got a step. One that
    stops between batches cannot know how long a batch will take where times vary: it works until its
    stop time, leaves the batch that it is in, and sends then; its first batch it finishes.
    """
    depth = work.depth if work.depth is not None else model.depth
    total = batches.total(work)
    stop_at = math.inf if work.stop_at is None else max(work.stop_at, begins_at)
    stop_s = (stop_at - begins_at) * (1 + TOLERANCE)
    got = reach(model, depth, pace.sample_s, batches, done, total, stop_s, noise)
    steps, last_depth, sent_at = got.batches, None, begins_at + got.done_s
    if steps < total:
        sent_at = stop_at
        if work.stop_in is None and not steps:
            steps, sent_at = 1, begins_at + got.next_s
        elif work.stop_in is not None and got.layers:
            steps, last_depth = steps + 1, got.layers
            depth = depth if got.batches else got.layers
    send_s = way.upload_s(float(model.byte_share[depth - 1])) if steps else way.latency_s
    cut = steps < total or last_depth is not None
    result = timeline.result_of(work, batches, depth, steps, done, cut, last_depth)
    return TimedResult(result, sent_at + send_s)
