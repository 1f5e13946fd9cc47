"""Units and decimals of numbers that are shown together."""


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
