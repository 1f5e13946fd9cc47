"""Checks that several settings of fleets share. NaN never passes."""

import math

from fedpace.core.errors import ConfigError


def positive(name: str, value: float) -> None:
    """Finite and above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} is {value}; set it to a finite number above 0")


def not_negative(name: str, value: float) -> None:
    """Finite and 0 or more."""
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{name} is {value}; set it to a finite number of 0 or more")


def enough(clients: int) -> None:
    """At least one client."""
    if clients < 1:
        raise ConfigError(f"clients is {clients}; a fleet has 1 client or more")


def at_least_one(name: str, value: int) -> None:
    """A count of 1 or more."""
    if value < 1:
        raise ConfigError(f"{name} is {value}; set it to 1 or more")
