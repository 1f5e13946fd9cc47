"""Policies, tasks and fleets by name (entry points) or by import path (`package.module:Name`)."""

import difflib
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from fedpace.core.errors import ConfigError

Group = Literal["policies", "tasks", "fleets"]


def names(group: Group) -> list[str]:
    """What is installed, in alphabetical order."""
    return sorted({point.name for point in entry_points(group=f"fedpace.{group}")})


def load(group: Group, name: str) -> Any:
    """The plugin class; ConfigError with the nearest name where there is none."""
    if ":" in name:
        return _imported(name)
    for point in entry_points(group=f"fedpace.{group}"):
        if point.name == name:
            return point.load()
    known = names(group)
    raise ConfigError(
        f"there is no {name!r} among the {group}{nearest(name, known)}; known are {', '.join(known)}, "
        f"or give an import path such as my_module:MyClass"
    )


def nearest(word: str, known: list[str]) -> str:
    """` (did you mean 'x'?)`, or nothing where none is near."""
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _imported(path: str) -> Any:
    module_name, _, attribute = path.partition(":")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise ConfigError(
            f"{path!r} cannot be imported: {error}; run from the folder of the module, or install it"
        ) from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        raise ConfigError(f"module {module_name!r} has no {attribute!r}") from None
