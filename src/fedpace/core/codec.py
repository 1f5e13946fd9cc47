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


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


_PARSER = json.JSONDecoder(parse_constant=_refuse)
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


def tag(kind: type) -> tuple[str, str]:
    """The family of a kind of message, and its name there."""
    return _TAGS[kind]


def encode(message: Message) -> dict[str, Any]:
    family, name = tag(type(message))
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
            body = record.copy()
            del body[family]
            message: Message = decode_fields(cls, body)
            return message
    raise JournalError(f"a record needs one of the keys {', '.join(_FAMILIES)}; it has {list(record)}")


def decode_fields(cls: type, record: dict[str, Any]) -> Any:
    """A dataclass from the object that `encode_fields` made of it."""
    if not isinstance(record, dict):
        raise JournalError(f"expected the fields of {cls.__name__}, found {record!r}")
    to_read = _to_read(cls, tuple(record), tuple(map(type, record.values())))
    try:
        if not to_read:
            return cls(**record)
        return cls(**record | {name: read(record[name]) for name, read in to_read})
    except (TypeError, ValueError, OverflowError, ConfigError, PolicyError) as error:
        raise JournalError(f"this is no {cls.__name__}: {json.dumps(record)} ({error})") from error


def dumps(record: dict[str, Any]) -> str:
    """One line of JSON; non-finite numbers are an error, since JSON has none."""
    return _JSON.encode(record)


def dumps_value(value: Any) -> str:
    """One value of a record, such as a tuple."""
    return _JSON.encode(_encode(value))


def loads(line: str) -> dict[str, Any]:
    """One object from one line; JournalError where it is none."""
    try:
        record = _PARSER.decode(line)
    except (ValueError, RecursionError):
        raise JournalError("not JSON; the journal is cut or damaged") from None
    if not isinstance(record, dict):
        raise JournalError(f"expected an object, found {record!r}")
    return record


def _encode(value: Any) -> Any:
    if value is None or type(value) in _PLAIN:
        return value
    if isinstance(value, (tuple, list)):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {key: _encode(item) for key, item in value.items()}
    return encode_fields(value)


_Reader = Callable[[Any], Any]


@cache
def _to_read(
    cls: type, names: tuple[str, ...], found: tuple[type, ...]
) -> tuple[tuple[str, _Reader], ...]:
    """Which fields of these names and types are not yet what they should be, and how to make them so.

    Kept for each combination that has come, since a journal has few: asking every field of every line
    would take twice as long.
    """
    hints = get_type_hints(cls)
    known = {field.name: hints[field.name] for field in fields(cls)}
    unknown = set(names) - set(known)
    if unknown:
        raise JournalError(f"{cls.__name__} has no field {sorted(unknown)[0]!r}")
    return tuple(
        (name, _reader(known[name]))
        for name, kind in zip(names, found, strict=True)
        if kind not in _PLAIN or kind not in _arms(known[name])
    )


def _arms(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _reader(hint: Any) -> _Reader:
    origin, arms = get_origin(hint), _arms(hint)
    if len(arms) > 1:
        inner = [_reader(arm) for arm in arms if arm is not type(None)]
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
