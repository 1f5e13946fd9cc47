"""A model's numbers as flat vectors, layers in execution order, and what a client changed of them."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fedpace.learn.device import upload


@dataclass(frozen=True, eq=False)
class Weights:
    """All numbers of a model. Never changed in place once handed out.

    params: float32 [P]; buffers: float32 [B], such as running means; counters: int64 [C].
    """

    params: Tensor
    buffers: Tensor
    counters: Tensor

    def on(self, device: torch.device) -> "Weights":
        """These numbers on `device`; the same object if they are there."""
        own = self.params, self.buffers, self.counters
        there = [upload(one, device) for one in own]
        moved = any(new is not old for new, old in zip(there, own, strict=True))
        return Weights(*there) if moved else self


@dataclass(frozen=True, slots=True)
class BatchEstimates:
    """Numbers about the loss on a task's last batch, as core's Measure names them; NaN: unknown."""

    gradient: float
    noise: float
    smoothness: float
    loss: float = math.nan
    change: float = math.nan
    slope: float = math.nan


@dataclass(frozen=True, eq=False)
class Update:
    """A task's changes of the last `depth` layers; each vector is a suffix of its kind in Weights.

    params: new minus old, float32; buffers: new values, float32, since differences of statistics
    from stale models add up to nonsense, such as negative variances; counters: new values, int64;
    effort: how much local work is in it, the number of plain gradient steps that it amounts to.
    width: where set, the vectors are those of the thinner model of all layers (see `width.Slim`).
    gradient: where it was asked for, of the loss on the last batch at the weights that the task began
    with, float32, over all layers whatever the depth, those of the thinner model where `width` is set.
    """

    depth: int
    params: Tensor
    buffers: Tensor
    counters: Tensor
    effort: float
    width: float | None = None
    estimates: BatchEstimates | None = None
    gradient: Tensor | None = None
