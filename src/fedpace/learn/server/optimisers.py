"""Server optimisers, the last step of aggregation: a delta, negated, is an ordinary gradient.

Reddi et al., Adaptive Federated Optimization, ICLR 2021, Algorithm 2. With g = -delta,

    m = beta1 m + (1 - beta1) g;    w = w - lr m / (sqrt(v) + tau);    m from 0, v from tau^2

    fedadam-paper  v = beta2 v + (1 - beta2) g^2
    fedyogi        v = v - (1 - beta2) g^2 sign(v - g^2)
    fedadagrad     v = v + g^2, and beta1 = 0

and nothing corrects a bias. `fedadam` is torch's Adam instead: v from 0, m and v divided by 1 - beta^t.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedpace.learn.settings import ServerSettings
from fedpace.learn.train.optimiser import skip_compiler, without_compiler

SecondMoment = Callable[[Tensor, Tensor, float], object]
"""Changes v in place, given g^2 and beta2."""


def average_squares(v: Tensor, squared: Tensor, beta2: float) -> None:
    """FedAdam: v is a moving average of squared gradients."""
    v.mul_(beta2).add_(squared, alpha=1 - beta2)


def step_to_square(v: Tensor, squared: Tensor, beta2: float) -> None:
    """FedYogi: v moves towards the squared gradient by a bounded step."""
    v.addcmul_(squared, torch.sign(v - squared), value=beta2 - 1)


class AdaptiveOptimiser(Optimizer):
    """Algorithm 2 with momentum: `second` says how the second moment moves."""

    def __init__(
        self, params: Sequence[nn.Parameter], second: SecondMoment, settings: ServerSettings
    ) -> None:
        s = settings
        skip_compiler()
        super().__init__(params, {"lr": s.lr, "beta1": s.beta1, "beta2": s.beta2, "tau": s.tau})
        self._second = second

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
        self._second(v, grad * grad, group["beta2"])
        param.addcdiv_(m, v.sqrt().add_(group["tau"]), value=-group["lr"])


def make_optimiser(settings: ServerSettings, params: Sequence[nn.Parameter]) -> Optimizer:
    """The optimiser that `settings` name, over one parameter a layer."""
    s = settings
    match s.optimiser:
        case "fedavg":
            return without_compiler("SGD")(params, lr=s.lr)  # lr 1: exactly w + delta
        case "fedavgm":
            return without_compiler("SGD")(params, lr=s.lr, momentum=s.momentum)
        case "fedadam":
            # Differs: not the paper's form, but what users of torch.optim know and have tuned for.
            return without_compiler("Adam")(params, lr=s.lr, betas=(s.beta1, s.beta2), eps=s.tau)
        case "fedadam-paper":
            return AdaptiveOptimiser(params, average_squares, s)
        case "fedyogi":
            return AdaptiveOptimiser(params, step_to_square, s)
        case "fedadagrad":
            # beta1 = 0, as in the paper's experiments with Adagrad.
            first = {"initial_accumulator_value": s.tau**2}
            return without_compiler("Adagrad")(params, lr=s.lr, eps=s.tau, **first)
