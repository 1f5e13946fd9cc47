"""Paths in settings: relative ones begin at the folder of the config file."""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from fedpace.core.errors import ConfigError

T = TypeVar("T")


def resolve_paths(settings: T, folder: Path) -> T:
    """The settings with every `Path` in them taken from `folder`, those of inner tables too.

    Absolute paths stay, and `~` is the user's home. An empty folder is the current one.
    """
    if not is_dataclass(settings) or isinstance(settings, type):
        return settings
    given = {item.name: getattr(settings, item.name) for item in fields(settings) if item.init}
    changed = {name: _resolved(value, folder) for name, value in given.items()}
    different = {name: value for name, value in changed.items() if value is not given[name]}
    return replace(settings, **different) if different else settings


def _resolved(value: Any, folder: Path) -> Any:
    if isinstance(value, Path):
        try:
            return folder / value.expanduser()
        except RuntimeError as error:
            raise ConfigError(f"{value} cannot be found: {error}; give the whole path") from error
    if isinstance(value, tuple):
        inner = tuple(_resolved(one, folder) for one in value)
        return inner if any(a is not b for a, b in zip(inner, value, strict=True)) else value
    return resolve_paths(value, folder)
