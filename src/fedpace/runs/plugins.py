"""Policies, tasks and fleets by name (entry points) or by import path (`package.module:Name`)."""

import os
import sys
from dataclasses import is_dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from fedpace.core.contract.places import place_of_error
from fedpace.core.errors import ConfigError, FedpaceError, nearest, unknown
from fedpace.core.installed.package import checkout_points
from fedpace.core.policy import Policy

Group = Literal["policies", "tasks", "fleets"]


def names(group: Group) -> list[str]:
    """Names of installed plugins, in alphabetical order."""
    return sorted({point.name for point in _points(group)})


def load(group: Group, name: Any) -> Any:
    """The plugin class; ConfigError where there is none, or where it is not made as it must be."""
    if not isinstance(name, str):
        raise ConfigError(f"{name!r} names none of the {group}; give a name or an import path")
    return check_kind(group, name, import_path(name) if ":" in name else _installed(group, name))


def check_kind(group: Group, name: str, kind: Any) -> Any:
    """The plugin class; ConfigError where it is not made as it must be."""
    settings = getattr(kind, "Settings", None)
    if not (isinstance(settings, type) and is_dataclass(settings)):
        raise ConfigError(f"{name!r} has no dataclass Settings; give the class one")
    if group == "policies" and not (isinstance(kind, type) and issubclass(kind, Policy)):
        raise ConfigError(f"{name!r} is no policy; derive it from fedpace.core.policy.Policy")
    if group != "policies" and not callable(getattr(kind, "build", None)):
        raise ConfigError(f"{name!r} has no function build; docs/own.md says what it takes")
    return kind


def _installed(group: Group, name: str) -> Any:
    for point in _points(group):
        if point.name == name:
            return _guarded(name, point.load)
    one = {"policies": "policy", "tasks": "task", "fleets": "fleet"}[group]
    raise unknown(one, name, names(group))


def _points(group: Group) -> tuple[EntryPoint, ...]:
    """Entry points of a group. They are read anew only where a folder of sys.path has changed."""
    return _read_points(group, tuple((folder, _changed_ns(folder)) for folder in sys.path))


@lru_cache(maxsize=3)
def _read_points(group: Group, _folders: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    name = f"fedpace.{group}"
    return *entry_points(group=name), *checkout_points(name)


def _changed_ns(folder: str) -> int:
    try:
        return os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return 0


def import_path(path: str) -> Any:
    """Import the object that `package.module:name` names."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute or module_name.startswith("."):
        raise ConfigError(f"{path!r} is no import path; write it as my_module:MyClass")
    module = _guarded(path, lambda: import_module(module_name))
    try:
        return getattr(module, attribute)
    except AttributeError:
        hint = nearest(attribute, vars(module)) or "; name what it defines, as my_module:MyClass"
        raise ConfigError(f"module {module_name!r} has no {attribute!r}{hint}") from None


def _guarded(name: str, load_it: Any) -> Any:
    """Code of other people's runs here, and may fail in any way."""
    try:
        return load_it()
    except ImportError as error:
        raise ConfigError(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}{_where(error)}; "
            f"run from the folder of its module, or install it"
        ) from error
    except FedpaceError as error:
        raise ConfigError(f"{name!r} cannot be used: {error}{_where(error)}") from error
    except Exception as error:
        raise ConfigError(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}{_where(error)}"
        ) from error


def _where(error: Exception) -> str:
    place = place_of_error(error)
    return "" if place is None else f" ({place})"
