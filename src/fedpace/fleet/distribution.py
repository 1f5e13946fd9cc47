"""Devices from distributions, each quantity drawn on its own."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Literal

import numpy as np

from fedpace.core.errors import Checked, ConfigError, Count, NonNegative, Positive, check
from fedpace.core.random import keyed as seeds
from fedpace.fleet.behaviour import STEADY, Behaviour
from fedpace.fleet.fleet import BYTES_S_PER_MBPS, Fleet, Floats, build_fleet
from fedpace.fleet.speeds import MOBILENET_V2, FleetSettings

WIDEST_LOG = 10.0


@dataclass(frozen=True, slots=True)
class Draw(Checked):
    """The distribution of one positive quantity.

    normal: sd = spread * mean, drawn again until positive; lognormal: spread is the sd of the log;
    uniform: mean * (1 - spread) to mean * (1 + spread); constant, exponential: spread is 0.
    """

    kind: Annotated[
        Literal["constant", "normal", "lognormal", "exponential", "uniform"], "the distribution"
    ] = "constant"
    mean: Annotated[Positive, "its mean (of a normal: before negative draws are rejected)"] = 1.0
    spread: Annotated[
        NonNegative, "normal, uniform: relative to the mean; lognormal: sd of the log"
    ] = 0.0

    def _check_rest(self) -> None:
        # Beyond these a uniform draw is negative, and a lognormal one leaves the range of floats.
        most = {"uniform": 1.0, "lognormal": WIDEST_LOG, "normal": math.inf}.get(self.kind, 0.0)
        if self.spread > most:
            raise ConfigError(
                f"spread is {self.spread}; with kind {self.kind} set it to {most:g} at most"
            )


def draw_positive(spec: Draw, size: int, rng: np.random.Generator) -> Floats:
    """`size` positive numbers from the distribution."""
    values = _raw(spec, size, rng)
    wrong = np.flatnonzero(values <= 0)
    while len(wrong):
        values[wrong] = _raw(spec, len(wrong), rng)
        wrong = wrong[values[wrong] <= 0]
    return values


def _raw(spec: Draw, size: int, rng: np.random.Generator) -> Floats:
    match spec.kind:
        case "constant":
            return np.full(size, spec.mean)
        case "normal":
            return rng.normal(spec.mean, spec.spread * spec.mean, size)
        case "lognormal":
            # E[X] = exp(mu + spread^2 / 2)
            return rng.lognormal(math.log(spec.mean) - spec.spread**2 / 2, spec.spread, size)
        case "exponential":
            return rng.exponential(spec.mean, size)
        case "uniform":
            return rng.uniform(spec.mean * (1 - spec.spread), spec.mean * (1 + spec.spread), size)


PHONES = Draw("lognormal", 0.23, 0.89)
"""Seconds a sample with the shipped trace's mean and spread."""


@dataclass(frozen=True, slots=True)
class DistributionSettings(FleetSettings):
    """Distributions of compute and links; the defaults have the phone trace's mean and spread."""

    compute_s: Annotated[Draw, "seconds to train the full model on `per_samples` samples"] = PHONES
    down_mbps: Annotated[Draw, "download, megabits a second"] = Draw("lognormal", 14.2, 1.14)
    up_mbps: Annotated[Draw, "upload, megabits a second"] = Draw("lognormal", 14.2, 1.14)
    behaviour: Annotated[Behaviour, "jitter, drift, dropout, presence"] = STEADY
    per_samples: Annotated[Count, "samples that compute_s is for: 64 for seconds a batch of 64"] = 1

    def reference(self) -> float | None:
        """MobileNet-V2's for the default, whose seconds are the trace's; of others nobody knows."""
        phones = self.compute_s == PHONES and self.per_samples == 1
        return self.reference_operations or (MOBILENET_V2 if phones else None)


class Distribution:
    """Devices drawn from distributions of compute, download and upload, independent of each other."""

    Settings = DistributionSettings

    @staticmethod
    def build(settings: DistributionSettings, clients: int, seed: int) -> Fleet:
        """A fleet of `clients` devices; the same for the same seed."""
        check("clients", clients, Count)
        compute_s = draw_positive(settings.compute_s, clients, seeds.generator(seed, "fleet.compute"))
        return build_fleet(
            compute_s / settings.per_samples,
            draw_positive(settings.down_mbps, clients, seeds.generator(seed, "fleet.down"))
            * BYTES_S_PER_MBPS,
            draw_positive(settings.up_mbps, clients, seeds.generator(seed, "fleet.up"))
            * BYTES_S_PER_MBPS,
            settings.behaviour,
            seed,
            partial(_device, settings),
        )


def _device(settings: DistributionSettings, rng: np.random.Generator) -> tuple[float, float, float]:
    return (
        draw_positive(settings.compute_s, 1, rng).item() / settings.per_samples,
        draw_positive(settings.down_mbps, 1, rng).item() * BYTES_S_PER_MBPS,
        draw_positive(settings.up_mbps, 1, rng).item() * BYTES_S_PER_MBPS,
    )
