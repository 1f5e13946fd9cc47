"""Messages as JSON objects and back, without loss.

`{"event": "joined", "at": 0.0, ...}`; the first key tells the family. Fields that are None are left
out. Floats keep all their digits, so a message survives the round trip unchanged.
"""

import json
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedpace.core.commands import Command
from fedpace.core.errors import ConfigError, JournalError, PolicyError
from fedpace.core.events import Event
from fedpace.core.facts import Fact

Message = Event | Command | Fact

_FAMILIES: dict[str, tuple[type, ...]] = {
    "event": get_args(Event),
    "command": get_args(Command),
    "fact": get_args(Fact),
}


_PLAIN = frozenset({bool, int, float, str})
_JSON = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_TAGS: dict[type, tuple[str, str]] = {
    cls: (family, cls.__name__.lower()) for family, members in _FAMILIES.items() for cls in members
}


@cache
def _members(family: str) -> dict[str, type]:
    return {cls.__name__.lower(): cls for cls in _FAMILIES[family]}


def encode_fields(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON values, nested dataclasses included."""
    out: dict[str, Any] = {}
    for name in value.__dataclass_fields__:
        item = getattr(value, name)
        if type(item) in _PLAIN:
            out[name] = item
        elif item is not None:
            out[name] = _encode(item)
    return out


def encode(message: Message) -> dict[str, Any]:
    family, name = _TAGS[type(message)]
    return {family: name, **encode_fields(message)}


def decode(record: dict[str, Any]) -> Message:
    """The message that `encode` made `record` from; JournalError says what is wrong with it."""
    for family in _FAMILIES:
        if family in record:
            name = record[family]
            cls = _members(family).get(name) if isinstance(name, str) else None
            if cls is None:
                raise JournalError(
                    f"unknown {family} {name!r}; known are {', '.join(_members(family))}"
                )
            body = {key: value for key, value in record.items() if key != family}
            message: Message = decode_fields(cls, body)
            return message
    raise JournalError(f"a record needs one of the keys {', '.join(_FAMILIES)}; it has {list(record)}")


def decode_fields(cls: type, record: dict[str, Any]) -> Any:
    """A dataclass from the object that `encode_fields` made of it."""
    if not isinstance(record, dict):
        raise JournalError(f"expected the fields of {cls.__name__}, found {record!r}")
    readers = _readers(cls)
    unknown = set(record) - set(readers)
    if unknown:
        raise JournalError(f"{cls.__name__} has no field {sorted(unknown)[0]!r}")
    try:
        return cls(**{name: readers[name](value) for name, value in record.items()})
    except (TypeError, ValueError, OverflowError, ConfigError, PolicyError) as error:
        raise JournalError(f"this is no {cls.__name__}: {json.dumps(record)} ({error})") from error


def dumps(record: dict[str, Any]) -> str:
    """One line of JSON; non-finite numbers are an error, since JSON has none."""
    return _JSON.encode(record)


def loads(line: str) -> dict[str, Any]:
    """One object from one line; JournalError where it is none."""
    try:
        record = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise JournalError("not JSON; the journal is cut or damaged") from None
    if not isinstance(record, dict):
        raise JournalError(f"expected an object, found {record!r}")
    return record


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def _encode(value: Any) -> Any:
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, (tuple, list)):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    return encode_fields(value)


@cache
def _readers(cls: type) -> dict[str, Callable[[Any], Any]]:
    hints = get_type_hints(cls)
    return {field.name: _reader(hints[field.name]) for field in fields(cls)}


def _reader(hint: Any) -> Callable[[Any], Any]:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = [_reader(arm) for arm in get_args(hint) if arm is not type(None)]
        if len(inner) != 1:
            return lambda value: value
        return lambda value: None if value is None else inner[0](value)
    if origin is tuple:
        item = _reader(get_args(hint)[0])
        return lambda values: tuple(item(value) for value in values)
    if origin is Literal:
        return lambda value: _one_of(value, get_args(hint))
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: decode_fields(hint, value)
    if hint is float:
        return _number
    if hint in (int, bool, str):
        return lambda value: _exactly(value, hint)
    return lambda value: value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def _exactly(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _one_of(value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise TypeError(f"{value!r} is not one of {allowed}")
    return value
