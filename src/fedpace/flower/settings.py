"""Settings of a run over Flower."""

import math
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class FlowerSettings:
    """Keys of a Flower run config, as `flower.out` and so on. Times are seconds."""

    out: Annotated[str, "folder for the journal and the final weights"] = "runs/flower"
    message_s: Annotated[
        float, "what a message and its reply take beside training; more where more is measured"
    ] = 6.0
    poll_s: Annotated[float, "the SuperLink is asked for nodes and replies this often"] = 0.5
    ttl_s: Annotated[float, "a task whose reply takes longer has failed"] = 3600.0
    resume: Annotated[bool, "go on with what `out` holds"] = False
    overwrite: Annotated[bool, "delete what `out` holds"] = False

    def __post_init__(self) -> None:
        if not 0 <= self.message_s < math.inf:
            raise ConfigError(f"message_s is {self.message_s}; set it to 0 or more")
        for name in ("poll_s", "ttl_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; set it above 0")
        if not self.out:
            raise ConfigError("out is empty; set it to a folder, best by its whole path")
        if self.resume and self.overwrite:
            raise ConfigError("resume and overwrite are both set; choose one")
