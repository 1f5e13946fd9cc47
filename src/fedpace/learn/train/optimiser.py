"""A client's optimiser, by its class name in torch.optim."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from fedpace.core.errors import ConfigError, unknown
from fedpace.learn.settings import TrainSettings


def client_optimiser(
    settings: TrainSettings, params: Sequence[Tensor], lr: float | Tensor
) -> Optimizer:
    """A new optimiser over `params`; the settings must have passed `check_optimiser`.

    lr: that of the settings, as it has decayed by the round.
    """
    return without_compiler(settings.optimiser)(params, lr=lr, **settings.options)


@cache
def without_compiler(name: str) -> Callable[..., Optimizer]:
    """An optimiser of torch.optim whose steps do not import torch's compiler.

    Making and stepping one tells the compiler, if it is at work, to look away. It never is here, but
    torch imports it for that, which takes seconds: as long as the rest of torch. Numbers are the same;
    where torch is put together in another way the class itself is taken.
    """
    kind: type[Optimizer] = getattr(torch.optim, name)
    plain: Any = getattr(kind.step, "__wrapped__", None)
    if getattr(plain, "__name__", "") != "step":
        return kind
    skip_compiler()
    while hasattr(plain, "__wrapped__"):  # below what profilers have put around it
        plain = plain.__wrapped__

    def step(self: Optimizer, closure: Any = None) -> Any:
        with torch.set_grad_enabled(bool(self.defaults.get("differentiable"))):
            return plain(self, closure)

    return type(name, (kind,), {"step": step, "__module__": kind.__module__})


def skip_compiler() -> None:
    """Let what all optimisers have in common not import torch's compiler."""
    for method in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        inner: Any = getattr(getattr(Optimizer, method), "__wrapped__", None)
        if inner is not None and not hasattr(inner, "__dynamo_disable"):
            inner.__dynamo_disable = inner


def effort(settings: TrainSettings, steps: int) -> float:
    """|a|_1 of FedNova (Wang et al., NeurIPS 2020, section 4): how far `steps` local steps can go.

    A gradient counts once for plain SGD; with momentum r it lives on, and the sum of all that it
    adds is (steps - r (1 - r^steps) / (1 - r)) / (1 - r). Optimisers that scale their steps, such as
    Adam, are counted by steps. Differs: dampening and Nesterov's variant are not told apart.
    """
    r = float(settings.options.get("momentum", 0.0)) if settings.optimiser == "SGD" else 0.0
    return (steps - r * (1 - r**steps) / (1 - r)) / (1 - r) if 0 < r < 1 else float(steps)


def check_optimiser(settings: TrainSettings) -> None:
    """Refuse what cannot make a plain step: one is made, with a parameter of its own."""
    known = {
        name
        for name, value in vars(torch.optim).items()
        if isinstance(value, type) and issubclass(value, Optimizer) and value is not Optimizer
    }
    if settings.optimiser not in known:
        raise unknown("optimiser", settings.optimiser, known)
    if "lr" in settings.options:
        raise ConfigError("options holds lr; give it as the setting lr instead")
    param = nn.Parameter(torch.zeros(1))
    param.grad = torch.zeros(1)
    try:
        client_optimiser(settings, [param], settings.lr).step()
    except Exception as error:  # torch raises ValueError, TypeError, RuntimeError and others here
        raise ConfigError(
            f"optimiser {settings.optimiser} cannot be used with lr {settings.lr} and options "
            f"{dict(settings.options)}: {error}; see torch.optim.{settings.optimiser} for its arguments"
        ) from error
