"""Tasks with inputs of all forms; at module level, so that worker processes can import them."""

from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from fedpace.learn.tasks.task import Task

SIZES = (13, 21, 6, 40, 15, 9)
TOTAL = sum(SIZES)


class Reader(nn.Module):
    """A mean of the embeddings of tokens that are real, and a few numbers, to three classes."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.numbers = nn.Linear(4, 6)
        self.head = nn.Linear(6, 3)

    def forward(self, ids, mask, numbers):
        real = mask.unsqueeze(-1).to(self.embed.weight.dtype)
        mean = (self.embed(ids) * real).sum(1) / real.sum(1).clamp(min=1)
        return self.head(torch.tanh(mean + self.numbers(numbers)))


class Nested(Reader):
    """Takes its arguments as (ids, {mask, numbers})."""

    def forward(self, ids, rest):
        return super().forward(ids, rest["mask"], rest["numbers"])


class Text(NamedTuple):
    ids: np.ndarray
    mask: np.ndarray
    numbers: np.ndarray


class TwoHeads(nn.Module):
    """A class and a number, from one input."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.which, self.much = nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return {"which": self.which(x), "much": self.much(x).squeeze(-1)}


def two_losses(outputs, targets):
    away = outputs["much"] - targets["much"]
    return nn.functional.cross_entropy(outputs["which"], targets["which"]) + away.square().mean()


def which_hits(outputs, targets):
    return outputs["which"].argmax(-1) == targets["which"]


def arrays():
    draw = np.random.default_rng(3)
    length = draw.integers(1, 6, TOTAL)
    return {
        "ids": draw.integers(0, 11, (TOTAL, 5)).astype(np.uint8),
        "mask": np.arange(5) < length[:, None],
        "numbers": draw.normal(size=(TOTAL, 4)),
    }, draw.integers(0, 3, TOTAL)


def shares():
    return np.split(np.random.default_rng(1).permutation(TOTAL), np.cumsum(SIZES)[:-1])


def named():
    inputs, targets = arrays()
    return Task(Reader, (inputs, targets), (inputs, targets), shares())


def in_a_row():
    inputs, targets = arrays()
    pair = tuple(inputs.values()), targets
    return Task(Reader, pair, pair, shares())


def in_a_named_tuple():
    inputs, targets = arrays()
    pair = Text(**inputs), targets
    return Task(Reader, pair, pair, shares())


def nested():
    inputs, targets = arrays()
    pair = (inputs.pop("ids"), inputs), targets
    return Task(Nested, pair, pair, shares())


def two_targets():
    inputs, targets = arrays()
    pair = inputs["numbers"], {"which": targets, "much": inputs["numbers"].sum(1)}
    return Task(TwoHeads, pair, pair, shares(), two_losses, which_hits)


ALL = {one.__name__: one for one in (named, in_a_row, in_a_named_tuple, nested, two_targets)}
