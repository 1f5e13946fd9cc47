"""Checks that several settings of fleets share. NaN never passes."""

import math

from fedpace.core.errors import ConfigError


def check_positive(name: str, value: float) -> None:
    """ConfigError unless the value is finite and above 0."""
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} is {value}; set it to a finite number above 0")


def check_not_negative(name: str, value: float) -> None:
    """ConfigError unless the value is finite and 0 or more."""
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{name} is {value}; set it to a finite number of 0 or more")


def check_clients(clients: int) -> None:
    """ConfigError unless there is a client."""
    if clients < 1:
        raise ConfigError(f"clients is {clients}; a fleet has 1 client or more")


def check_at_least_one(name: str, value: int) -> None:
    """ConfigError unless the count is 1 or more."""
    if value < 1:
        raise ConfigError(f"{name} is {value}; set it to 1 or more")
