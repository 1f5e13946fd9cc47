"""Step sizes that fall from round to round."""

import math

from fedpace.core.errors import ConfigError


def step_size(lr: float, decay: float, version: int) -> float:
    """lr / (1 + decay * version): inverse decay by the version of the model that a task starts from."""
    return lr / (1 + decay * version)


def check_steps(lr: float, decay: float) -> None:
    if not (math.isfinite(lr) and lr > 0):
        raise ConfigError(f"lr is {lr}; set it above 0")
    if not (math.isfinite(decay) and decay >= 0):
        raise ConfigError(f"decay is {decay}; set it to 0 (constant) or more")
