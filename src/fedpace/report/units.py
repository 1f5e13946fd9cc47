"""Units, decimals and the meaning of numbers that are shown together."""

import math
from collections.abc import Mapping

_MEANINGS = {
    "per sample": "a sample takes a device the same seconds whatever the model",
    "by operations": "seconds scale with the operations that the model takes",
    "measured": "seconds are those of the server's clock",
}


def speeds_heading(speeds: Mapping[str, str], long: bool = True) -> str:
    """The line above a table that says what compute times mean, by each label's `Summary.speeds`."""
    kinds = list(dict.fromkeys(speeds.values()))
    if len(kinds) == 1:
        meaning = f": {_MEANINGS.get(kinds[0], 'runs differ')}." if long else ""
        return f"Compute time {kinds[0]}{meaning}"
    parts = (
        f"{kind} for {', '.join(label for label, own in speeds.items() if own == kind)}"
        for kind in kinds
    )
    return f"Compute time differs: {'; '.join(parts)}."


def time_unit(longest_s: float) -> tuple[str, float]:
    """Name of the unit that suits times of up to `longest_s`, and its seconds."""
    if longest_s < 180:
        return "s", 1.0
    if longest_s < 180 * 60:
        return "min", 60.0
    if longest_s < 96 * 3600:
        return "h", 3600.0
    return "days", 86400.0


def byte_unit(most: float) -> tuple[str, float]:
    """Name of the decimal unit that suits sizes of up to `most` bytes, and its bytes."""
    for name, size in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if most < 1000 * size:
            return name, size
    return "TB", 1e12


def decimals(smallest: float) -> int:
    """Decimals that leave the smallest number of a column two or three digits."""
    if smallest >= 100:
        return 0
    if smallest >= 1:
        return 1
    return 2 if smallest >= 0.1 else 3


def significant(largest: float, digits: int = 4) -> int:
    """Decimals that leave the largest number of a column this many digits, and six at most."""
    if not largest > 0 or not math.isfinite(largest):
        return digits - 1
    return min(max(digits - 1 - math.floor(math.log10(largest)), 0), 6)
