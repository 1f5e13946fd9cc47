"""The family of errors: who made the mistake decides the type; and settings that check themselves.

A message says what was wrong, what was expected and what to do about it.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real
from typing import Annotated, Any, ClassVar, Literal, get_args, get_origin, get_type_hints


class FedpaceError(Exception):
    """Base of all errors that fedpace raises on purpose."""


class ConfigError(FedpaceError):
    """A setting, file or argument from the user cannot be used."""


class PolicyError(FedpaceError):
    """A policy broke a rule of the contract."""


class PeerError(FedpaceError):
    """A client or runtime reported something that cannot be true."""


class Diverged(FedpaceError):
    """Training has come to numbers that are not finite: an outcome of the run, which ends with it."""


class HookError(FedpaceError):
    """A hook of the user's has failed; its own exception is the cause."""


class StopRun(Exception):
    """Raised by a hook: the run ends there in good order, and the text is the reason that it gives."""


class NothingHappened(UserWarning):
    """A run ended without an update that was ever used."""


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


@dataclass(frozen=True, slots=True)
class Allowed:
    """A limit on a setting, part of its type: words that go on from "set it", and a test.

    NaN passes no test that compares. choices: names, where only some are allowed.
    """

    words: str
    test: Callable[[Any], bool]
    choices: tuple[str, ...] = ()


Count = Annotated[int, Allowed("to 1 or more", lambda value: value >= 1)]
Natural = Annotated[int, Allowed("to 0 or more", lambda value: value >= 0)]
Positive = Annotated[float, Allowed("above 0", lambda value: 0 < value < math.inf)]
NonNegative = Annotated[float, Allowed("to 0 or more", lambda value: 0 <= value < math.inf)]
OneOrMore = Annotated[float, Allowed("to 1 or more", lambda value: 1 <= value < math.inf)]
Fraction = Annotated[float, Allowed("above 0, and to 1 at most", lambda value: 0 < value <= 1)]
BelowOne = Annotated[float, Allowed("in [0, 1)", lambda value: 0 <= value < 1)]


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


_NUMBERS = {
    int: Allowed("to a whole number", lambda value: _is(value, Integral)),
    float: Allowed("to a number", lambda value: _is(value, Real)),
}
"""By the type that an annotated one is of; whoever calls from Python may pass anything."""


def between(least: float, most: float) -> Allowed:
    """The limits of a closed interval."""
    return Allowed(f"between {least:g} and {most:g}", lambda value: least <= value <= most)


def check(name: str, value: Any, kind: Any) -> None:
    """ConfigError unless a value, or every entry of a tuple, is allowed by a type. None always is."""
    _check_limits(name, value, _limits(kind))


def _check_limits(name: str, value: Any, limits: Iterable[Allowed]) -> None:
    verb, values = ("has", value) if isinstance(value, tuple) else ("is", (value,))
    for limit in limits:
        for one in values:
            if one is not None and not limit.test(one):
                finite = ", and finite" if isinstance(one, float) and not math.isfinite(one) else ""
                hint = nearest(one, limit.choices) if isinstance(one, str) else ""
                raise ConfigError(f"{name} {verb} {one!r}{hint}; set it {limit.words}{finite}")


class Checked:
    """Base of settings, frozen dataclasses: the types of their fields say which values are allowed."""

    __slots__ = ()
    TABLE: ClassVar[str] = ""
    """Comes before the names of fields in errors."""

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for name, limits, has_none in _limited_fields(kind):
            value = getattr(self, name)
            if value is None and not has_none:
                raise ConfigError(f"{self.TABLE}{name} is None; set it {limits[0].words}")
            _check_limits(self.TABLE + name, value, limits)
        self._check_rest()

    def _check_rest(self) -> None:
        """ConfigError for what no type of a field says: one is empty, two contradict each other."""


@lru_cache(maxsize=256)
def _limited_fields(kind: type) -> tuple[tuple[str, tuple[Allowed, ...], bool], ...]:
    """Fields of settings that have limits, with them, and whether they may be None.

    Kept, as reading types takes many times as long as checking values by them.
    """
    hints = get_type_hints(kind, include_extras=True)
    found = ((name, tuple(_limits(hint)), _has_none(hint)) for name, hint in hints.items())
    return tuple(one for one in found if one[1])


def _has_none(kind: Any) -> bool:
    """True if None is an arm of a type."""
    return type(None) in get_args(get_args(kind)[0] if get_origin(kind) is Annotated else kind)


def _limits(kind: Any) -> Iterator[Allowed]:
    """Limits in a type, in the arms of a union and in the entries of a tuple."""
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        *others, last = choices
        yield Allowed(f"to {', '.join(others)} or {last}", lambda value: value in choices, choices)
    elif get_origin(kind) is not Mapping:
        if get_origin(kind) is Annotated and (number := _NUMBERS.get(get_args(kind)[0])):
            yield number
        for part in get_args(kind):
            if isinstance(part, Allowed):
                yield part
            yield from _limits(part)


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Around imports of what an extra brings: without it everything else still works."""
    try:
        yield
    except ImportError as error:
        raise ConfigError(
            f"the package {error.name} is missing; install it with: pip install 'fedpace[{extra}]'"
        ) from error
