"""Settings of clients' training and of the server; without torch, so that reading a config is quick."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fedpace.core.errors import ConfigError
from fedpace.core.policy import check_steps

_GONE = {"compiled": "stacked", "auto": "by kind"}
"""Values of `together` of earlier releases, and what they mean now."""


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """Local training of every client."""

    optimiser: Annotated[str, "class name in torch.optim"] = "SGD"
    lr: Annotated[float, "learning rate"] = 0.05
    options: Annotated[
        Mapping[str, float | int | bool], "further arguments of the optimiser, such as momentum"
    ] = field(default_factory=dict)
    batch_size: Annotated[int, "samples a step"] = 20
    epochs: Annotated[int, "local epochs, where the policy does not choose them"] = 1
    steps: Annotated[int | None, "local steps (batches) instead of epochs"] = None
    precision: Annotated[
        Literal["float32", "tf32", "bf16"],
        "of products on a GPU; tf32 is quicker and less exact, bf16 more so, with weights in float32",
    ] = "float32"
    together: Annotated[
        Literal["by kind", "one by one", "stacked", "compiled", "auto"],
        "clients that one call trains; by kind: dense layers and, on a GPU, all models are stacked; "
        "compiled and auto are gone and mean stacked and by kind",
    ] = "by kind"
    decay: Annotated[float, "lr of round t (from 0) is lr / (1 + decay * t); 0 keeps it"] = 0.0

    def __post_init__(self) -> None:
        instead = _GONE.get(self.together)
        if instead is not None:
            warnings.warn(
                f"train.together = {self.together!r} is gone, and {instead!r} is used in its place; "
                "the next release will refuse it",
                FutureWarning,
                stacklevel=3,
            )
            object.__setattr__(self, "together", instead)
        check_steps(self.lr, self.decay)
        for name in ("batch_size", "epochs", "steps"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; set it to 1 or more")


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The server optimiser; the aggregated update is its pseudo-gradient."""

    optimiser: Annotated[
        Literal["fedavg", "fedavgm", "fedadam", "fedyogi", "fedadagrad"], "takes the step"
    ] = "fedavg"
    normalise: Annotated[
        bool, "FedNova: bring every update to the same number of local steps before they are combined"
    ] = False
    lr: Annotated[float, "server learning rate; the adaptive ones want 0.01 to 0.1"] = 1.0
    momentum: Annotated[float, "of fedavgm"] = 0.9
    beta1: Annotated[float, "first-moment decay of fedadam and fedyogi"] = 0.9
    beta2: Annotated[float, "second-moment decay of fedadam and fedyogi"] = 0.99
    tau: Annotated[float, "adaptivity of fedadam, fedyogi and fedadagrad"] = 1e-3

    def __post_init__(self) -> None:
        for name in ("lr", "tau"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ConfigError(f"{name} is {getattr(self, name)}; set it above 0")
        for name in ("momentum", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; set it in [0, 1)")
