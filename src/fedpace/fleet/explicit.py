"""Devices given number by number."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np

from fedpace.core.errors import ConfigError, Count, Positive, check
from fedpace.fleet.behaviour import STEADY, Behaviour
from fedpace.fleet.fleet import BYTES_S_PER_MBPS, Changes, Fleet, Floats, build_fleet, one_of
from fedpace.fleet.speeds import FleetSettings


@dataclass(frozen=True, slots=True)
class SpeedChange:
    """A client's compute speed from one of its tasks on, until its next change or drift."""

    client: Annotated[int, "number of the client, from 0"]
    task: Annotated[int, "which of the client's own tasks, from 0"]
    compute_s: Annotated[float, "seconds to train the full model on `per_samples` samples"]

    def __post_init__(self) -> None:
        change = f"the change of client {self.client} in its task {self.task}"
        if self.client < 0 or self.task < 0:
            raise ConfigError(f"{change} is impossible; clients and their tasks count from 0")
        if not 0 < self.compute_s < math.inf:
            raise ConfigError(
                f"compute_s in {change} is {self.compute_s}; set it to a finite number above 0"
            )


@dataclass(frozen=True, slots=True)
class ExplicitSettings(FleetSettings):
    """One number a client, or one for all. With free links, those may be left out."""

    compute_s: Annotated[tuple[float, ...], "seconds to train the full model on `per_samples` samples"]
    down_mbps: Annotated[tuple[float, ...], "download, megabits a second"] = ()
    up_mbps: Annotated[tuple[float, ...], "upload, megabits a second"] = ()
    behaviour: Annotated[Behaviour, "jitter, drift, dropout, presence"] = STEADY
    per_samples: Annotated[Count, "samples that compute_s is for: 64 for seconds a batch of 64"] = 1
    changes: Annotated[
        tuple[SpeedChange, ...],
        "other speeds from a task on, such as { client = 2, task = 1, compute_s = 12.0 }; a client's "
        "tasks count from 0",
    ] = ()

    def _check_rest(self) -> None:
        links_needed = not self.behaviour.free_links
        for name, needed in (
            ("compute_s", True),
            ("down_mbps", links_needed and not self.behaviour.free_download),
            ("up_mbps", links_needed),
        ):
            if needed and not getattr(self, name):
                raise ConfigError(f"{name} is empty; give one number a client, or one for all")
        for client, compute_s in enumerate(self.compute_s):
            check(f"compute_s of client {client}", compute_s, Positive)


class Explicit:
    """Devices whose speeds are listed. A client that drifts becomes one of the listed devices."""

    Settings = ExplicitSettings

    @staticmethod
    def build(settings: ExplicitSettings, clients: int, seed: int) -> Fleet:
        """A fleet of `clients` devices; the seed matters only for their behaviour."""
        check("clients", clients, Count)
        sample_s = _spread("compute_s", settings.compute_s, clients) / settings.per_samples
        down = _spread("down_mbps", settings.down_mbps or (np.inf,), clients) * BYTES_S_PER_MBPS
        up = _spread("up_mbps", settings.up_mbps or (np.inf,), clients) * BYTES_S_PER_MBPS
        listed = np.stack([sample_s, down, up], axis=1)
        redraw, changes = partial(one_of, listed), _by_client(settings, clients)
        return build_fleet(sample_s, down, up, settings.behaviour, seed, redraw, changes)


def _by_client(settings: ExplicitSettings, clients: int) -> Changes:
    speeds: dict[int, dict[int, float]] = {}
    for change in settings.changes:
        if change.client >= clients:
            raise ConfigError(
                f"changes has one of client {change.client}, but there are {clients} clients; "
                f"number them 0 to {clients - 1}"
            )
        own = speeds.setdefault(change.client, {})
        if change.task in own:
            raise ConfigError(
                f"changes has two of client {change.client} in its task {change.task}; give one"
            )
        own[change.task] = change.compute_s / settings.per_samples
    return {client: tuple(sorted(own.items())) for client, own in speeds.items()}


def _spread(name: str, values: tuple[float, ...], clients: int) -> Floats:
    if len(values) not in (1, clients):
        raise ConfigError(
            f"{name} has {len(values)} numbers, but there are {clients} clients; "
            f"give {clients}, or one for all"
        )
    return np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), clients))
