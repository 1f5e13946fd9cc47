"""The family of errors: who made the mistake decides the type.

A message says what was wrong, what was expected and what to do about it.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args, get_origin, get_type_hints


class FedpaceError(Exception):
    """Base of all errors that fedpace raises on purpose."""


class ConfigError(FedpaceError):
    """A setting, file or argument from the user cannot be used."""


class PolicyError(FedpaceError):
    """A policy broke a rule of the contract."""


class PeerError(FedpaceError):
    """A client or runtime reported something that cannot be true."""


class JournalError(FedpaceError):
    """A journal or snapshot on disk is broken or belongs to another run."""


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing where none is near; case does not matter."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1)
    return f" (did you mean {names[close[0]]!r}?)" if close else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a name that does not exist."""
    names = sorted(known)
    hint = nearest(name, names)
    return ConfigError(f"there is no {kind} {name!r}{hint}; known are {', '.join(names) or 'none'}")


def check_choices(settings: Any) -> None:
    """ConfigError unless every field of a Literal type has one of its values."""
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            *others, last = get_args(hint)
            raise ConfigError(f"{name} is {value!r}; set it to {', '.join(others)} or {last}")


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Around imports of what an extra brings: without it everything else still works."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"the package {error.name} is missing; install it with: pip install 'fedpace[{extra}]'"
        ) from error
