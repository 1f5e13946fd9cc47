"""Small models and tasks; at module level, so that worker processes can import them."""

import os

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from fedpace.learn.tasks.task import Task


class Swapped(nn.Module):
    """Registered from output to input."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)
        self.middle = nn.Linear(5, 6)
        self.first = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.middle(torch.tanh(self.first(x)))))


class Tied(nn.Module):
    """Token embedding and output share a weight; blocks with residuals lie between."""

    def __init__(self, tied: bool = True) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.body = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.head = nn.Linear(6, 11, bias=False)
        if tied:
            self.head.weight = self.embed.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).mean(1)
        for layer in self.body:
            x = x + torch.tanh(layer(x))
        return self.head(x)


class SharedDropout(nn.Module):
    """One dropout module is used in front of every layer; `seen` notes its mode at each call."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.drop = nn.Dropout(0.5)
        self.seen: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(self.drop(x))
            self.seen.append(self.drop.training)
        return x


class Recurrent(nn.Module):
    """A cell that runs once for each column, each time after the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(1, 4)
        self.cell = nn.Linear(8, 4)
        self.decode = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(len(x), 4)
        for column in x.split(1, dim=1):
            state = torch.tanh(self.cell(torch.cat([self.encode(column), state], 1)))
        return self.decode(state)


def plain() -> nn.Module:
    """Four layers, nothing random, no buffers."""
    return nn.Sequential(
        nn.Linear(4, 7),
        nn.Tanh(),
        nn.Linear(7, 6),
        nn.Tanh(),
        nn.Linear(6, 5),
        nn.Tanh(),
        nn.Linear(5, 3),
    )


def normed() -> nn.Module:
    """Layers "0", "1", "3", "4", "6"; "1" and "4" are batch normalisations; dropouts at "2" and "5"."""
    return nn.Sequential(
        nn.Linear(4, 7),
        nn.BatchNorm1d(7),
        nn.Dropout(0.3),
        nn.Linear(7, 6),
        nn.BatchNorm1d(6),
        nn.Dropout(0.3),
        nn.Linear(6, 3),
    )


def crashing() -> nn.Module:
    """Ends the process that trains it."""
    return nn.Sequential(nn.Linear(4, 3), Crash())


class Crash(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled():  # not while the model is looked at
            os._exit(3)
        return x


class OnlyHere:
    """Makes `plain` models, but cannot be unpickled in another process."""

    def __init__(self) -> None:
        self.home = os.getpid()

    def __setstate__(self, state: dict[str, int]) -> None:
        if os.getpid() != state["home"]:
            raise ImportError("no module named elsewhere")

    def __call__(self) -> nn.Module:
        return plain()


def task(model=plain, clients=(13, 21, 6), test: int = 30) -> Task:
    """Random samples of four numbers in three classes; `clients` are sizes of shares."""
    draw = np.random.default_rng(5)
    total = sum(clients)
    inputs = draw.normal(size=(total + test, 4)).astype(np.float32)
    targets = draw.integers(0, 3, total + test)
    cuts = np.cumsum(clients)[:-1]
    return Task(
        model=model,
        train=(inputs[:total], targets[:total]),
        test=(inputs[total:], targets[total:]),
        clients=np.split(draw.permutation(total), cuts),
    )


def names(layout):
    """Names of the layers, input first."""
    return tuple(layer.name for layer in layout.layers)


class CallCounter(TorchDispatchMode):
    """A mode that counts the calls of one of torch's operators."""

    def __init__(self, operator):
        super().__init__()
        self.operator, self.count = operator, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func is self.operator
        return func(*args, **(kwargs or {}))
