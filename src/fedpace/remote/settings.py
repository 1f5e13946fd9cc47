"""Settings of a federation over a network."""

import math
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """The table [serve] of a config. Times are seconds."""

    wait_for: Annotated[
        int | None, "clients that must be there before the run begins; default: all"
    ] = None
    slack: Annotated[float, "share by which policies stretch their deadlines"] = 0.05
    beat_s: Annotated[float, "clients say that they live at least this often"] = 2.0
    silent_s: Annotated[float, "a client that says nothing for so long has left"] = 8.0
    return_s: Annotated[float, "a client whose connection broke may come back within this"] = 5.0
    resume_s: Annotated[float, "after a restart of the server, clients may come back within this"] = (
        60.0
    )
    hold_s: Annotated[float, "and time stands still until they are back, but not longer than this"] = (
        20.0
    )
    snapshot_every_s: Annotated[float, "the models are saved this often"] = 30.0
    norm_bound: Annotated[float | None, "an update whose L2 norm is larger is refused"] = None
    quarantine_after: Annotated[int, "refused updates after which a client is shut out"] = 3
    quarantine_s: Annotated[float, "for how long"] = 600.0
    hellos_per_minute: Annotated[int, "more connections than this of one client are turned away"] = 30
    calls_at_once: Annotated[int, "more calls than this of one client at a time are turned away"] = 16
    most_bytes: Annotated[int | None, "largest update; default: what the model can need"] = None

    def __post_init__(self) -> None:
        for name in ("beat_s", "silent_s", "return_s", "resume_s", "snapshot_every_s", "quarantine_s"):
            if not 0 < getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; set it above 0")
        for name in ("hold_s", "slack"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name} is {getattr(self, name)}; set it to 0 or more")
        for name in (
            "wait_for",
            "quarantine_after",
            "hellos_per_minute",
            "calls_at_once",
            "most_bytes",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}; set it to 1 or more")
        if self.norm_bound is not None and not self.norm_bound > 0:
            raise ConfigError(f"norm_bound is {self.norm_bound}; set it above 0")
        if self.silent_s < 2 * self.beat_s:
            raise ConfigError(
                f"silent_s is {self.silent_s:g}, but clients beat every {self.beat_s:g} s; "
                f"set it to {2 * self.beat_s:g} or more"
            )
