"""A model with all that training it takes: flat weights, parts to train, and steps."""

from dataclasses import replace

import torch
from torch import nn

from fedpace.learn.device import place
from fedpace.learn.model.cut import Cut
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.stopped import StoppedBackward
from fedpace.learn.model.weights import Weights
from fedpace.learn.model.width import ThinModel
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train.graphs import cuda_steps
from fedpace.learn.train.steps import EagerSteps, Loss, ModelPart, Steps


class TrainableModel:
    """A full model on a device, or a thinner one of the same layers.

    steps: makes a task's steps; eager: those with a backward pass of their own. Where they are not the
    same, on a GPU, neither knows the state of the other's optimiser.
    """

    def __init__(
        self,
        model: nn.Module,
        layout: Layout,
        loss: Loss,
        settings: TrainSettings,
        device: torch.device,
    ) -> None:
        self.model = place(model, device)
        self.layout = layout
        self.bound = layout.bind(self.model)
        self.eager = EagerSteps(self.model, loss, settings)
        self.steps: Steps = self.eager
        if device.type == "cuda":
            params = self.bound.params(layout.depth)
            self.steps = cuda_steps(self.model, loss, settings, params, device) or self.eager
        self._slim: ThinModel | None = None
        self._parts: dict[tuple[type[Cut], int], Cut] = {}

    @classmethod
    def thin(
        cls, made: ThinModel, loss: Loss, settings: TrainSettings, device: torch.device
    ) -> "TrainableModel":
        """Make one of a thinner model."""
        body = cls(made.model, made.layout, loss, settings, device)
        body._slim = replace(made, params=made.params.to(device), buffers=made.buffers.to(device))
        return body

    def begin(self, lr: float) -> None:
        """Begin a task, with this learning rate."""
        self.steps.begin(lr)
        if self.eager is not self.steps:
            self.eager.begin(lr)

    def take(self, weights: Weights) -> Weights:
        """The numbers of the full model that this model holds."""
        return weights if self._slim is None else self._slim.take(weights)

    def cut(self, depth: int) -> ModelPart:
        """The last layers, of a model whose other layers are frozen."""
        return self._part(Cut, depth)

    def stopped(self, depth: int) -> ModelPart:
        """The last layers, of a model that runs in full; all of them are the full cut."""
        return self._part(StoppedBackward if depth < self.layout.depth else Cut, depth)

    def _part(self, kind: type[Cut], depth: int) -> Cut:
        if (kind, depth) not in self._parts:
            self._parts[kind, depth] = kind(self.bound, depth)
        return self._parts[kind, depth]
