"""Settings of a run over Flower."""

from dataclasses import dataclass
from typing import Annotated

from fedpace.core.errors import Checked, ConfigError, NonNegative, Positive


@dataclass(frozen=True, slots=True)
class FlowerSettings(Checked):
    """Keys of a Flower run config, as `flower.out` and so on. Times are seconds."""

    out: Annotated[str, "folder for the journal and the final weights"] = "runs/flower"
    message_s: Annotated[
        NonNegative, "what a message and its reply take beside training; more where more is measured"
    ] = 6.0
    poll_s: Annotated[Positive, "the SuperLink is asked for nodes and replies this often"] = 0.5
    ttl_s: Annotated[Positive, "a task whose reply takes longer has failed"] = 3600.0
    resume: Annotated[bool, "go on with what `out` holds"] = False
    overwrite: Annotated[bool, "delete what `out` holds"] = False

    def _check_rest(self) -> None:
        if not self.out:
            raise ConfigError("out is empty; set it to a folder, best by its whole path")
        if self.resume and self.overwrite:
            raise ConfigError("resume and overwrite are both set; choose one")
