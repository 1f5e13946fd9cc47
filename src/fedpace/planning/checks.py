"""Checks of what callers give to planners: one line for a wrong type, shape or size."""

import math
import numbers
import reprlib
from typing import Any

import numpy as np

from fedpace.core.errors import ConfigError


def read_column(name: str, values: Any, what: str = "numbers", finite: bool = True) -> np.ndarray:
    """A list of numbers as float64; it may be empty. what: they are, said in errors."""
    try:
        found = np.asarray(values)
    except (TypeError, ValueError):  # lists of unequal lengths
        found = np.asarray(None)
    if found.ndim == 1 and not found.size:
        found = found.astype(float)
    fine = found.ndim == 1 and found.dtype.kind in "iuf"
    if not fine or (finite and not np.isfinite(found).all()):
        raise ConfigError(f"{name} is {shown(values)}; give a list of finite {what}")
    return np.asarray(found, dtype=float)


def check_whole(name: str, value: Any, least: int = 1, most: int | None = None, why: str = "") -> None:
    """Refuse what is no whole number in the limits. why: of the upper limit, said in errors."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        limits = f"to {least} or more" if most is None else f"between {least} and {most}"
        kind = limits if whole else f"to a whole number {limits.removeprefix('to ')}"
        raise ConfigError(f"{name} is {shown(value)}{why}; set {name} {kind}")


def check_number(name: str, value: Any, least: float = -math.inf, above: float = -math.inf) -> None:
    """Refuse what is no finite number in the limits."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not math.isfinite(value) or value < least or value <= above:
        limit = "" if least == above == -math.inf else f" of at least {least:g}"
        limit = f" above {above:g}" if above > least else limit
        raise ConfigError(f"{name} is {shown(value)}; give a finite number{limit}")


def check_columns(**columns: np.ndarray) -> None:
    """Refuse columns that are not flat, of unequal lengths, or not of finite numbers.

    Cheap enough for every round: only where something is wrong is each looked at.
    """
    first = next(iter(columns.values()))
    shape = getattr(first, "shape", None)
    try:
        total = sum(columns.values(), start=np.zeros(shape or ()))
        fine = all(one.shape == shape for one in columns.values()) and len(shape or ()) == 1
        fine = fine and math.isfinite(float(total.sum()))
    except (AttributeError, TypeError, ValueError):
        fine = False
    if fine:
        return
    for name, values in columns.items():
        read_column(name, values)
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{size} {name}" for name, size in sizes.items())
        raise ConfigError(f"there are {found}; give one of each for every client")
    for name, values in columns.items():
        if not isinstance(values, np.ndarray):
            raise ConfigError(
                f"{name} is a {type(values).__name__}; give an array with one number a client"
            )


def shown(value: Any) -> str:
    """A value on one line, shortened."""
    return " ".join(reprlib.repr(value).split())
