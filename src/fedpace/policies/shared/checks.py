"""Checks that several policies make of their settings."""

from fedpace.core.errors import ConfigError


def resolve(name: str, value: int | None, default: int, most: int, of: str) -> int:
    """`value`, or `default` where it is None; it must lie between 1 and `most`."""
    chosen = default if value is None else value
    if not 1 <= chosen <= most:
        raise ConfigError(f"{name} is {chosen}, but {most} {of}; set {name} between 1 and {most}")
    return chosen
