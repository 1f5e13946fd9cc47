"""Client optimisers that are made once and become new again for each task, in the same memory."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.optimiser import client_optimiser
from fedpace.learn.train.steps import ModelPart

State = defaultdict[Tensor, Any]
"""An optimiser's state, by parameter."""


def capturable(settings: TrainSettings) -> TrainSettings | None:
    """Settings of an optimiser whose steps do not need the CPU, and that is new once its state is zero.

    None where there is none: SGD with dampening, for one, treats its first step differently.
    """
    options = dict(settings.options)
    if options.get("differentiable"):
        return None
    if settings.optimiser == "SGD":
        return None if options.get("dampening") else settings
    if settings.optimiser in ("Adam", "AdamW"):
        options["capturable"] = True
        if "foreach" not in options:
            options.setdefault("fused", True)  # one kernel instead of about twenty
        return replace(settings, options=options)
    return None


def with_moving_lr(settings: TrainSettings) -> TrainSettings:
    """Capturable settings of an optimiser on a GPU that reads its learning rate there at each step."""
    if settings.optimiser != "SGD":
        return settings
    options = {name: value for name, value in settings.options.items() if name != "foreach"}
    return replace(settings, options={**options, "fused": True})


def new_state(settings: TrainSettings, params: Sequence[Tensor]) -> State:
    """An optimiser's state, made by a step without gradients, which may decay `params`."""
    optimiser = client_optimiser(settings, params, settings.lr)
    for param in params:
        param.grad = torch.zeros_like(param)
    optimiser.step()
    optimiser.zero_grad()
    return optimiser.state


def tensors_of(state: State) -> list[Tensor]:
    """All tensors of an optimiser's state."""
    return [t for one in state.values() for t in one.values() if isinstance(t, Tensor)]


class ReusedOptimisers:
    """Optimisers for every depth over one state that stays where it is in memory."""

    def __init__(self, settings: TrainSettings, params: Sequence[Tensor]) -> None:
        """Make the state by `new_state`: load `params` later."""
        self._settings = settings
        self._by_depth: dict[int, Optimizer] = {}
        self._state = new_state(settings, params)

    def at(self, part: ModelPart) -> Optimizer:
        """The optimiser of what the part trains."""
        settings = self._settings
        if part.depth not in self._by_depth:
            self._by_depth[part.depth] = client_optimiser(settings, part.trained, settings.lr)
            self._by_depth[part.depth].state = self._state
        return self._by_depth[part.depth]

    def tensors(self) -> list[Tensor]:
        """All tensors that the state holds."""
        return tensors_of(self._state)

    def reset(self) -> None:
        """Make the optimisers new."""
        for tensor in self.tensors():
            tensor.zero_()
