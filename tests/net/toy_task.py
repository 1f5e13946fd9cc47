"""A task that takes no time: a small model on random samples."""

import time
from functools import partial

import torch
from torch import Tensor, nn

from fedpace.learn.metrics.ready import argmax_hits
from fedpace.learn.tasks.task import Task

SAMPLES = 40


def model(wide: int) -> nn.Module:
    """Three layers; the middle one has wide * wide numbers of 4 bytes."""
    return nn.Sequential(
        nn.Linear(4, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 3)
    )


def slow_hits(outputs: Tensor, targets: Tensor, test_s: float) -> Tensor:
    time.sleep(test_s)
    return argmax_hits(outputs, targets)


def task(name: str = "server", wide: int = 8, test_s: float = 0.0) -> Task:
    """test_s: seconds that every test of the model takes."""
    draw = torch.Generator().manual_seed(sum(name.encode()))
    inputs = torch.randn(SAMPLES, 4, generator=draw)
    targets = inputs[:, :3].argmax(-1)
    accuracy = partial(slow_hits, test_s=test_s) if test_s else argmax_hits
    return Task(partial(model, wide), (inputs, targets), (inputs, targets), accuracy=accuracy)
