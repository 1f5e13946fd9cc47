"""Settings of clients' training and of the server; without torch, so that reading a config is quick."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from fedpace.core.errors import BelowOne, Checked, ConfigError, Count, NonNegative, Positive

_GONE = {"compiled": "stacked", "auto": "by kind"}
"""Values of `together` of earlier releases, and what they mean now."""


Precision = Literal["by device", "float32", "tf32", "bf16"]


@dataclass(frozen=True, slots=True)
class TrainSettings(Checked):
    """Local training of every client."""

    optimiser: Annotated[str, "class name in torch.optim"] = "SGD"
    lr: Annotated[Positive, "learning rate"] = 0.05
    options: Annotated[
        Mapping[str, float | int | bool], "further arguments of the optimiser, such as momentum"
    ] = field(default_factory=dict)
    batch_size: Annotated[Count, "samples a step"] = 20
    epochs: Annotated[Count, "local epochs, where the policy does not choose them"] = 1
    steps: Annotated[Count | None, "local steps (batches) instead of epochs"] = None
    precision: Annotated[
        Precision,
        "of products in training; by device: tf32 on GPUs that have it, float32 on a CPU, which has "
        "nothing else; bf16 is quicker and less exact still, with weights in float32",
    ] = "by device"
    together: Annotated[
        Literal["by kind", "one by one", "stacked", "compiled", "auto"],
        "clients that one call trains; by kind: dense layers, small recurrent and attention models "
        "and, on a GPU, all models are stacked; compiled and auto are gone: stacked and by kind",
    ] = "by kind"
    kernel: Annotated[
        Literal["auto", "torch", "compiled"],
        "computes steps of dense layers on a CPU; compiled: C, by this machine's compiler; auto: that "
        "where there is one, else torch, and the journal says which; they differ by rounding",
    ] = "auto"
    decay: Annotated[NonNegative, "lr of round t (from 0) is lr / (1 + decay * t); 0 keeps it"] = 0.0

    def _check_rest(self) -> None:
        instead = _GONE.get(self.together)
        if instead is not None:
            warnings.warn(
                f"train.together = {self.together!r} is gone, and {instead!r} is used in its place; "
                "the next release will refuse it",
                FutureWarning,
                stacklevel=4,
            )
            object.__setattr__(self, "together", instead)


@dataclass(frozen=True, slots=True)
class ServerSettings(Checked):
    """The server optimiser; the aggregated update is its pseudo-gradient."""

    optimiser: Annotated[
        Literal["fedavg", "fedavgm", "fedadam", "fedadam-paper", "fedyogi", "fedadagrad"],
        "takes the step; fedadam is torch's Adam, fedadam-paper that of Reddi et al., as fedyogi and "
        "fedadagrad are",
    ] = "fedavg"
    normalise: Annotated[
        bool, "FedNova: bring every update to the same number of local steps before they are combined"
    ] = False
    lr: Annotated[Positive, "server learning rate; the adaptive ones want 0.01 to 0.1"] = 1.0
    average: Annotated[
        BelowOne,
        "decay of an exponential mean of the global model's versions, which is tested and saved in the "
        "model's place (0.9: of the last ten or so); clients train from the model itself. 0: no mean",
    ] = 0.0
    memory: Annotated[
        Literal["none", "latest", "corrected"],
        "of every client's last update, clients times the model; latest: steps are the mean of all of "
        "them, corrected: those of arrivals are corrected by it (FedVARP)",
    ] = "none"
    momentum: Annotated[BelowOne, "of fedavgm"] = 0.9
    beta1: Annotated[BelowOne, "first-moment decay of both fedadams and fedyogi"] = 0.9
    beta2: Annotated[BelowOne, "second-moment decay of both fedadams and fedyogi"] = 0.99
    tau: Annotated[Positive, "adaptivity of both fedadams, fedyogi and fedadagrad"] = 1e-3

    @property
    def adaptive(self) -> bool:
        """Whether the optimiser scales every number of a step by its history."""
        return self.optimiser not in ("fedavg", "fedavgm")

    def _check_rest(self) -> None:
        if self.memory != "none" and self.normalise:
            raise ConfigError(
                f"memory is {self.memory!r} and normalise is on, but a memory keeps updates as they "
                "are; set one of them"
            )
