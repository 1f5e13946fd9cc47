"""Settings of device behaviour: jitter, drift, dropout, presence, free transfers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from fedpace.core.errors import Allowed, Checked, ConfigError, NonNegative, Positive, between


@dataclass(frozen=True, slots=True)
class Behaviour(Checked):
    """Settings that every kind of fleet has; by default devices are steady and always there."""

    jitter: Annotated[
        NonNegative, "relative spread of a task's compute time (normal, kept positive)"
    ] = 0.0
    drift: Annotated[float, between(0, 1), "probability that a client is drawn anew before a task"] = (
        0.0
    )
    dropout: Annotated[
        float,
        Allowed("to 0 or more, and below 1 or no task would finish", lambda value: 0 <= value < 1),
        "probability that a client drops out in the middle of a task",
    ] = 0.0
    presence: Annotated[
        Literal["always", "on-off", "trace"],
        "always; on-off: exponential times online and offline; trace: intervals from presence_file",
    ] = "always"
    mean_on_s: Annotated[Positive, "on-off: mean seconds that a client stays online"] = 3600.0
    mean_off_s: Annotated[Positive, "on-off: mean seconds that a client stays offline"] = 3600.0
    presence_file: Annotated[
        Path | None, "trace: CSV (or .gz) with client, active_from_s, active_to_s, finish_time_s"
    ] = None
    latency_s: Annotated[NonNegative, "seconds that every transfer takes besides its bytes"] = 0.0
    free_links: Annotated[bool, "transfers take no time at all"] = False
    free_download: Annotated[bool, "receiving the model takes no time, as in TimelyFL's paper"] = False
    free_probe: Annotated[bool, "probing takes no time, as in TimelyFL's paper"] = False
    free_estimates: Annotated[
        bool, "estimates that work asks for take no time, as in ADEL-FL's and DYNAMITE's papers"
    ] = False
    layer_times: Annotated[
        Literal["steady", "exponential"],
        "exponential: the backward pass of each layer in each batch takes an exponential time around "
        "its cost (ADEL-FL); probes and the speeds that clients report keep the expected times",
    ] = "steady"

    def _check_rest(self) -> None:
        if self.presence == "trace" and self.presence_file is None:
            raise ConfigError(
                "presence is 'trace', but presence_file is not set; name the trace's file"
            )
        if self.free_links and self.latency_s > 0:
            raise ConfigError(
                f"latency_s is {self.latency_s}, but free_links says that transfers take no time; "
                "set latency_s to 0 or free_links to false"
            )


STEADY = Behaviour()
"""The default of every fleet: no jitter, drift or dropout, always online, nothing free."""
