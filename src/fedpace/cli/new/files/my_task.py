"""What is to be learned: six kinds of waves in noise. Put your data and model here."""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

import fedpace

KINDS = 6
LENGTH = 64


@dataclass(frozen=True)
class WaveSettings:
    """Keys of [task] in config.toml. A relative `Path` would begin there, too."""

    samples: Annotated[int, "training samples of all clients together"] = 1200
    noise: Annotated[float, "its standard deviation; a wave's amplitude is 1"] = 1.2


class Waves:
    """The task that `kind = "my_task:Waves"` names."""

    Settings = WaveSettings

    @staticmethod
    def build(settings: WaveSettings, clients: int) -> fedpace.Task:
        """Make the task. Its samples are divided by [partition]."""
        train = make_waves(settings.samples, settings.noise, seed=1)
        test = make_waves(400, settings.noise, seed=2)
        return fedpace.Task(make_model, train, test)


def make_waves(count: int, noise: float, seed: int) -> tuple[Tensor, Tensor]:
    """Inputs (count, LENGTH) and their classes: class c is a wave of c + 1 periods."""
    draw = torch.Generator().manual_seed(seed)
    kinds = torch.randint(KINDS, (count,), generator=draw)
    phases = 0.3 * torch.rand(count, 1, generator=draw)
    steps = torch.arange(LENGTH) / LENGTH
    waves = torch.sin(2 * math.pi * ((kinds[:, None] + 1) * steps + phases))
    return waves + noise * torch.randn(count, LENGTH, generator=draw), kinds


def make_model() -> nn.Module:
    """A new model: any nn.Module; its layers are the modules that have weights."""
    return nn.Sequential(
        nn.Linear(LENGTH, 64),
        nn.ReLU(),
        nn.Linear(64, 32),
        nn.ReLU(),
        nn.Linear(32, KINDS),
    )
