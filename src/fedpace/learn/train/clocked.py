"""Measures what training to each depth takes on this machine, by a clock."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median

import torch

from fedpace.learn.memory import keep_freed_memory
from fedpace.learn.model.layers import BoundModel
from fedpace.learn.samples.samples import Batch
from fedpace.learn.train.trainable import TrainableModel

Now = Callable[[], float]

_LEAST_TURNS, _LEAST_S = 7, 0.5  # steps of small models are short, and many of them are needed


def clock(
    body: TrainableModel, forward: Callable[[], None], batch: Batch
) -> tuple[list[float], list[float]]:
    """Seconds of each layer's forward pass, and those of a step at every depth from 0.

    Steps are those of a task: its cut, its memory, its optimiser. Depths take turns, and what a turn
    says are shares of it, so that a busy time of the machine weighs no more than another; the median
    turn counts. forward: the pass without a backward one.
    """
    keep_freed_memory()
    now = _clock()
    _turn(body, forward, batch, now)  # warms up
    turns: list[tuple[list[float], list[float]]] = []
    begin = now()
    while len(turns) < _LEAST_TURNS or now() < begin + _LEAST_S:
        turns.append(_turn(body, forward, batch, now))
    usual = median(sum(steps) for steps, _ in turns)
    steps = [usual * median(one) for one in zip(*(_shares(s) for s, _ in turns), strict=True)]
    for depth in range(1, len(steps)):  # more work is never quicker; what says otherwise is noise
        steps[depth] = max(steps[depth], steps[depth - 1])
    layers = _shares([median(one) for one in zip(*(_shares(s) for _, s in turns), strict=True)])
    return [layer * steps[0] for layer in layers], steps


@contextmanager
def entering(bound: BoundModel, enter: Callable[[int], None]) -> Iterator[None]:
    """Call `enter(i)` whenever the model enters layer i."""
    modules = dict(bound.model.named_modules())
    hooks = [
        # The default argument gives each hook its own index.
        modules[layer.module].register_forward_pre_hook(lambda module, args, index=index: enter(index))
        for index, layer in enumerate(bound.layout.layers)
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _clock() -> Now:
    """The processor's clock, which does not see what else runs, if it is fine and of one thread."""
    fine = time.get_clock_info("process_time").resolution < 1e-5
    return time.process_time if fine and torch.get_num_threads() == 1 else time.perf_counter


def _turn(
    body: TrainableModel, forward: Callable[[], None], batch: Batch, now: Now
) -> tuple[list[float], list[float]]:
    """Seconds of a step at every depth, and of each layer's forward pass."""
    with body.cut(0):
        begin = now()
        forward()
        alone = now() - begin
        spans = _forward_spans(body.bound, forward, now)
    return [alone, *(_step(body, depth + 1, batch, now) for depth in range(body.layout.depth))], spans


def _shares(seconds: Sequence[float]) -> list[float]:
    total = sum(seconds)
    return [one / total for one in seconds]


def _step(body: TrainableModel, depth: int, batch: Batch, now: Now) -> float:
    """Seconds of a task's second step: the first has to make the optimiser's state."""
    body.begin(0.0)  # the optimiser's work without its effect
    with body.steps.on(body.cut(depth)) as step:
        step(*batch)
        begin = now()
        step(*batch)
        spent = now() - begin
    body.model.zero_grad(set_to_none=True)
    return spent


def _forward_spans(bound: BoundModel, forward: Callable[[], None], now: Now) -> list[float]:
    """Seconds of one forward pass, by the layer entered last."""
    spans = [0.0] * bound.layout.depth
    entered: list[tuple[int, float]] = []
    with entering(bound, lambda layer: entered.append((layer, now()))):
        begin = now()
        forward()
        end = now()
    if not entered:
        return [end - begin, *spans[1:]]
    marks = [(entered[0][0], begin), *entered[1:]]
    for (layer, start), stop in zip(marks, [mark for _, mark in marks[1:]] + [end], strict=True):
        spans[layer] += stop - start
    return spans
