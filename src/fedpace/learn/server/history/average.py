"""The exponential mean of a model over its versions."""

from typing import Any

import torch
from torch import Tensor

from fedpace.learn.model.weights import Weights


class ModelAverage:
    """The mean of a model's versions, in which each newer one counts more by a factor of 1 / decay.

    While there are fewer than 1 / (1 - decay) versions all of them count alike, and the weights that a
    run begins with never do. weights: None before the first version.
    """

    def __init__(self, decay: float) -> None:
        self._decay, self._versions = decay, 0
        self.weights: Weights | None = None

    def add(self, weights: Weights) -> None:
        """Count a new version; what was handed out stays as it is."""
        self._versions += 1
        if self.weights is None:
            self.weights = weights
            return
        share = max(1 - self._decay, 1 / self._versions)
        before = self.weights
        params, buffers = (
            _between(*one, share)
            for one in ((before.params, weights.params), (before.buffers, weights.buffers))
        )
        self.weights = Weights(params, buffers, weights.counters)

    def state(self) -> dict[str, Any]:
        """The mean and how many versions are in it, as plain values and tensors."""
        return {"versions": self._versions, **({} if self.weights is None else vars(self.weights))}

    def load(self, state: dict[str, Any]) -> None:
        """Become the mean whose `state()` this was; {}: that of nothing yet."""
        self._versions = state.get("versions", 0)
        self.weights = None
        if "params" in state:
            self.weights = Weights(state["params"], state["buffers"], state["counters"])


def _between(before: Tensor, after: Tensor, share: float) -> Tensor:
    """Go a share of the way; what does not change may be infinite, as in masks."""
    return torch.where(before == after, after, torch.lerp(before, after, share))
