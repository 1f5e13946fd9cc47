"""Devices given number by number."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.fleet.behaviour import STEADY, Behaviour
from fedpace.fleet.checks import enough
from fedpace.fleet.fleet import BYTES_S_PER_MBPS, Fleet, Floats, assemble


@dataclass(frozen=True, slots=True)
class ExplicitSettings:
    """One number a client, or one for all. With free links, those may be left out."""

    compute_s: Annotated[tuple[float, ...], "seconds to train the full model on one sample"]
    down_mbps: Annotated[tuple[float, ...], "download, megabits a second"] = ()
    up_mbps: Annotated[tuple[float, ...], "upload, megabits a second"] = ()
    behaviour: Annotated[Behaviour, "jitter, drift, dropout, presence"] = STEADY

    def __post_init__(self) -> None:
        links_needed = not self.behaviour.free_links
        for name, needed in (
            ("compute_s", True),
            ("down_mbps", links_needed and not self.behaviour.free_download),
            ("up_mbps", links_needed),
        ):
            if needed and not getattr(self, name):
                raise ConfigError(f"{name} is empty; give one number a client, or one for all")


class Explicit:
    """Devices whose speeds are listed. A client that drifts becomes one of the listed devices."""

    Settings = ExplicitSettings

    @staticmethod
    def build(settings: ExplicitSettings, clients: int, seed: int) -> Fleet:
        """A fleet of `clients` devices; the seed matters only for their behaviour."""
        enough(clients)
        sample_s = _spread("compute_s", settings.compute_s, clients)
        down = _spread("down_mbps", settings.down_mbps or (np.inf,), clients) * BYTES_S_PER_MBPS
        up = _spread("up_mbps", settings.up_mbps or (np.inf,), clients) * BYTES_S_PER_MBPS
        listed = np.stack([sample_s, down, up], axis=1)
        return assemble(sample_s, down, up, settings.behaviour, seed, partial(_device, listed))


def _spread(name: str, values: tuple[float, ...], clients: int) -> Floats:
    if len(values) not in (1, clients):
        raise ConfigError(
            f"{name} has {len(values)} numbers, but there are {clients} clients; "
            f"give {clients}, or one for all"
        )
    return np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), clients))


def _device(listed: Floats, rng: np.random.Generator) -> tuple[float, float, float]:
    sample_s, down, up = listed[rng.integers(len(listed))].tolist()
    return sample_s, down, up
