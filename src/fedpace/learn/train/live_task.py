"""Trains one task batch by batch, until its work is done, its time is over or it is cancelled."""

import math
from collections.abc import Callable, Iterator
from statistics import fmean, median

import torch
from torch import Tensor

from fedpace.core.commands import TOLERANCE, Work
from fedpace.learn.model.layers import BoundModel
from fedpace.learn.model.stopped import backward_until
from fedpace.learn.model.weights import Weights
from fedpace.learn.samples.samples import Batch
from fedpace.learn.train.orders import TaskOpening, TaskOrders
from fedpace.learn.train.steps import Step
from fedpace.learn.train.trainable import TrainableModel
from fedpace.learn.tree import count_rows

Clock = Callable[[], float]

RECENT = 5
"""Batches whose mean time says how long the next one takes."""


class LiveTask:
    """One task while it is trained: after each batch, clock and orders decide whether it goes on.

    steps: batches that got a step, the first `full_steps` before the work was known, of `total` that
    it wants; depth: layers that the update carries; last: the last of those batches.
    """

    def __init__(
        self,
        body: TrainableModel,
        batches: Iterator[Batch],
        opened: TaskOpening,
        samples: int,
        shares: list[float],
        orders: TaskOrders,
        clock: Clock,
        on_step: Callable[[int], None],
    ) -> None:
        self._body, self._batches, self._opened, self._orders = body, batches, opened, orders
        self._clock, self._on_step = clock, on_step
        self._samples = samples
        self._epoch = math.ceil(samples / opened.batch_size)
        self.times = BatchTimes(shares, min(opened.batch_size, samples))
        self.steps = self.full_steps = self.total = self.trained = 0
        self.depth = body.layout.depth
        self.last_depth: int | None = None
        self.last: Batch | None = None

    def probe(self, on_profile: Callable[[float], None]) -> None:
        """Train one batch, then more of them until there is work, or as many as there may be."""
        if self._orders.cancelled:
            return
        most = self._opened.max_epochs
        limit = math.inf if most is None else most * self._epoch
        with self._body.steps.on(self._body.cut(self.depth)) as step:
            self._train_batch(step)
            on_profile(self.times.full_s)
            while self._opened.go_on and self.steps < limit and not self._orders.given:
                self._train_batch(step)

    def carry_out(self, work: Work, old: Weights) -> None:
        """Train what the work wants beyond what is done, in its time."""
        self.full_steps = self.steps
        self.total = work.steps if work.steps is not None else (work.epochs or 1) * self._epoch
        stop_at = math.inf
        if work.stop_at is not None:
            left_s = max(work.stop_at - self._clock(), 0.0)
            stop_at = work.stop_at + left_s * TOLERANCE
        if work.stop_in is not None:
            self._train_layers(stop_at)
        else:
            self._train_batches(work.depth or self.depth, stop_at, old)

    def _train_batches(self, depth: int, stop_at: float, old: Weights) -> None:
        """Train those that are expected to be done in time, and one at least: `timeline.carry_out`."""
        body = self._body
        if self.steps and depth < self.depth:
            body.bound.load(old, keep=depth)
        self.depth = depth
        with body.steps.on(body.cut(depth)) as step:
            while self._wanted and (not self.steps or self._clock() + self._next_s() <= stop_at):
                self._train_batch(step)

    def _train_layers(self, stop_at: float) -> None:
        """Train until the time is over, also in the middle of a batch: `layerwise.carry_out`.

        A batch whose output layer is not done in time has never been: its statistics go back too.
        """
        body, full = self._body, self._body.layout.depth
        backward = TimedBackward(body.bound, self._clock, stop_at)
        buffers = list(body.model.buffers())
        with body.eager.on(body.cut(full), backward) as step:
            while self._wanted and self.last_depth is None and self._clock() < stop_at:
                kept = [buffer.clone() for buffer in buffers]
                began_at, batch = self._clock(), next(self._batches)
                backward.in_time = backward.passed = full
                step(*batch)
                if not backward.in_time:
                    with torch.no_grad():
                        for buffer, before in zip(buffers, kept, strict=True):
                            buffer.copy_(before)
                    return
                if backward.in_time < full:
                    self.depth = self.depth if self.steps else backward.in_time
                    self.last_depth = backward.in_time
                self._count(batch, backward.passed, began_at)

    @property
    def _wanted(self) -> bool:
        return self.steps < self.total and not self._orders.cancelled

    def _next_s(self) -> float:
        size, done = self._opened.batch_size, self.steps % self._epoch
        return self.times.next_s(self.depth, min(size, self._samples - done * size))

    def _train_batch(self, step: Step) -> None:
        began_at, batch = self._clock(), next(self._batches)
        step(*batch)
        self._count(batch, self.depth, began_at)

    def _count(self, batch: Batch, depth: int, began_at: float) -> None:
        samples = count_rows(batch[0])
        self.times.note(depth, samples, self._clock() - began_at)
        self.last = batch
        self.steps += 1
        self.trained += samples
        self._on_step(self.steps)


class TimedBackward:
    """A backward pass that ends at the first layer that is late, and leaves the others' gradients.

    in_time: layers that were done by `stop_at`; passed: with the one that was not. Both are set before
    each pass to all layers, which is what a loss that no layer has a part in comes to.
    """

    def __init__(self, bound: BoundModel, clock: Clock, stop_at: float) -> None:
        self._bound, self._clock, self._stop_at = bound, clock, stop_at
        self.in_time = self.passed = bound.layout.depth

    def __call__(self, value: Tensor) -> None:
        full = self._bound.layout.depth
        self.in_time = self.passed = 0
        if not self._late(0):  # it is, where the forward pass took all of the time
            self.passed = backward_until(value, self._bound, self._late)
            if self.passed == full:
                self._late(full)
        for param in self._bound.frozen(self.in_time):
            param.grad = None

    def _late(self, depth: int) -> bool:
        if self._clock() > self._stop_at:
            return True
        self.in_time = depth
        return False


class BatchTimes:
    """Seconds that one task's batches took, by the layers that were trained.

    shares: cost of a step over that of the full model, by its depth from 1; size: samples of a whole
    batch. The short batch at the end of an epoch is looked at only where there is no whole one, as if
    time went by samples.
    """

    def __init__(self, shares: list[float], size: int) -> None:
        self._shares = shares
        self._size = size
        self.first_s: float | None = None
        """Of the first batch, as of a whole one of the full model."""
        self._whole: dict[int, list[float]] = {}
        self._short: dict[int, list[float]] = {}

    def note(self, depth: int, samples: int, seconds: float) -> None:
        kind = self._whole if samples == self._size else self._short
        whole_s = seconds * (self._size / samples)
        kind.setdefault(depth, []).append(whole_s)
        if self.first_s is None:
            self.first_s = whole_s / self._shares[depth - 1]

    def next_s(self, depth: int, samples: int) -> float:
        """Seconds that a batch is expected to take, scaled from other depths where none is known."""
        known = self._at(depth)
        whole_s = fmean(known[-RECENT:]) if known else self.full_s * self._shares[depth - 1]
        return whole_s * (samples / self._size)

    @property
    def full_s(self) -> float:
        """Seconds of a whole batch of the full model, the median, scaled where parts were trained."""
        known = self._at(len(self._shares))
        if known:
            return median(known) / self._shares[-1]
        depths = {*self._whole, *self._short}
        return median(one / self._shares[depth - 1] for depth in depths for one in self._at(depth))

    def _at(self, depth: int) -> list[float]:
        return self._whole.get(depth) or self._short.get(depth, [])
