"""Server optimisers, the last step of aggregation: a delta, negated, is an ordinary gradient.

Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, Optimizer

from fedpace.learn.settings import ServerSettings


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
