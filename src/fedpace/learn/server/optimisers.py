"""The server's models and their optimisers: an aggregated delta, negated, is an ordinary gradient.

Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2. There is one parameter for
each layer; a layer that nobody trained has no gradient, so that neither it nor its moments move. The
same holds for numbers of a layer; of Adam's bias correction the layer decides.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, Optimizer

from fedpace.core.errors import unknown
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.weights import Weights
from fedpace.learn.server.aggregate import AggregatedUpdate
from fedpace.learn.settings import ServerSettings

__all__ = ["ServerSettings", "Slot", "Yogi", "make_optimiser"]


class Yogi(Optimizer):
    """FedYogi, Algorithm 2: v moves towards the squared gradient by a bounded step.

    m = beta1 m + (1 - beta1) g;  v = v - (1 - beta2) g^2 sign(v - g^2);
    w = w - lr m / (sqrt(v) + tau). m starts at 0 and v at tau^2; no bias correction.
    """

    def __init__(
        self, params: Sequence[nn.Parameter], lr: float, beta1: float, beta2: float, tau: float
    ) -> None:
        super().__init__(params, {"lr": lr, "beta1": beta1, "beta2": beta2, "tau": tau})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    self._move(param, param.grad, group)

    def _move(self, param: nn.Parameter, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[param]
        if not state:
            state["m"] = torch.zeros_like(param)
            state["v"] = torch.full_like(param, group["tau"] ** 2)
        m, v = state["m"], state["v"]
        m.mul_(group["beta1"]).add_(grad, alpha=1 - group["beta1"])
        squared = grad * grad
        v.addcmul_(squared, torch.sign(v - squared), value=group["beta2"] - 1)
        param.addcdiv_(m, v.sqrt().add_(group["tau"]), value=-group["lr"])


def make_optimiser(settings: ServerSettings, params: Sequence[nn.Parameter]) -> Optimizer:
    """The optimiser that `settings` name, over one parameter a layer."""
    s = settings
    match s.optimiser:
        case "fedavg":
            return SGD(params, lr=s.lr)  # lr 1: exactly w + delta
        case "fedavgm":
            return SGD(params, lr=s.lr, momentum=s.momentum)
        case "fedadam":
            # Differs: torch corrects the bias of both moments and starts v at 0; the paper corrects
            # nothing and starts v at tau^2. torch.optim is what users know and have tuned for.
            return Adam(params, lr=s.lr, betas=(s.beta1, s.beta2), eps=s.tau)
        case "fedyogi":
            return Yogi(params, s.lr, s.beta1, s.beta2, s.tau)
        case "fedadagrad":
            # beta1 = 0, as in the paper's experiments with Adagrad.
            return Adagrad(params, lr=s.lr, initial_accumulator_value=s.tau**2, eps=s.tau)
        case other:
            names = ("fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad")
            raise unknown("server optimiser", other, names)


class Slot:
    """One model of the server and its optimiser, which works on copies of the layers' parameters."""

    def __init__(self, layout: Layout, weights: Weights, settings: ServerSettings) -> None:
        self._layout = layout
        self.weights = weights
        self._params = [nn.Parameter(layer.clone()) for layer in _by_layer(layout, weights.params)]
        self._optimiser = make_optimiser(settings, self._params)

    def step(self, combined: AggregatedUpdate, lr: float | None) -> None:
        """Make new weights; the old ones stay as they are for those who hold them."""
        layout, old, depth = self._layout, self.weights, combined.depth
        start = layout.start(depth)
        for index, param in enumerate(self._params):
            at = layout.starts[index].params - start.params
            touched = index >= layout.depth - depth
            param.grad = combined.params[at : at + param.numel()].neg() if touched else None
        usual = [group["lr"] for group in self._optimiser.param_groups]
        for group in self._optimiser.param_groups:
            group["lr"] = group["lr"] if lr is None else lr
        with self._keeping(combined):
            self._optimiser.step()
        for group, rate in zip(self._optimiser.param_groups, usual, strict=True):
            group["lr"] = rate
        before = old.buffers[start.buffers :]
        # What does not change may be infinite, as in masks, and has no way to go.
        moved = torch.lerp(before, combined.buffers, combined.buffer_shares)
        still = (before == combined.buffers) | (combined.buffer_shares == 0)
        moved = torch.where(still, before, moved)
        counters = torch.maximum(old.counters[start.counters :], combined.counters)
        self.weights = Weights(
            torch.cat([param.detach() for param in self._params]),
            torch.cat([old.buffers[: start.buffers], moved]),
            torch.cat([old.counters[: start.counters], counters]),
        )

    @contextmanager
    def _keeping(self, combined: AggregatedUpdate) -> Iterator[None]:
        """Around a step: numbers that nobody holds, and their moments, stay as they are."""
        kept: list[tuple[Tensor, Tensor, Tensor]] = []
        if combined.held is not None:
            masks = _by_layer(self._layout, combined.held)
            for param, held in zip(self._params, masks, strict=True):
                moments = self._optimiser.state.get(param, {}).values()
                for one in (param.detach(), *moments):
                    if isinstance(one, Tensor) and one.shape == param.shape:
                        kept.append((one, held, one.clone()))
        yield
        for one, held, old in kept:
            one.copy_(torch.where(held, one, old))

    def state(self) -> dict[str, Any]:
        return {**vars(self.weights), "optimiser": copy.deepcopy(self._optimiser.state_dict())}

    def load(self, state: dict[str, Any]) -> None:
        self.weights = Weights(state["params"], state["buffers"], state["counters"])
        with torch.no_grad():
            for param, layer in zip(
                self._params, _by_layer(self._layout, self.weights.params), strict=True
            ):
                param.copy_(layer)
        # A copy, since the optimiser goes on to change these tensors in place.
        self._optimiser.load_state_dict(copy.deepcopy(state["optimiser"]))


def _by_layer(layout: Layout, params: Tensor) -> list[Tensor]:
    marks = [start.params for start in layout.starts]
    return [params[start:stop] for start, stop in pairwise(marks)]
