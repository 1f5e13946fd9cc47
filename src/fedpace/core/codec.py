"""Messages as lines of JSON and back, without loss: `{"event":"joined","at":0.0,...}`.

The first key tells the family. Fields that are None are left out. Floats keep all their digits, so a
message survives the round trip unchanged. What comes from a file or a peer is checked field by field.
"""

import math
from typing import Any, TypeVar

import msgspec

from fedpace.core.commands import Command
from fedpace.core.errors import FedpaceError, JournalError
from fedpace.core.events import Event
from fedpace.core.facts import Fact

Message = Event | Command | Fact
T = TypeVar("T")

_ENCODER = msgspec.json.Encoder()
_FAMILIES = {"event": Event, "command": Command, "fact": Fact}
_DECODERS = {
    f'{{"{family}":'.encode(): msgspec.json.Decoder(kinds) for family, kinds in _FAMILIES.items()
}


def encode(value: Any) -> bytes:
    """One line of JSON, without its end. ValueError for a number that is not finite: JSON has none."""
    line = _ENCODER.encode(value)
    if b"null" in line and not _is_finite(value):
        raise ValueError(f"{value!r} has a number that is not finite")
    return line


def decode(line: bytes) -> Message:
    """The message that a line was made from; JournalError says what is wrong with it."""
    for start, decoder in _DECODERS.items():
        if line.startswith(start):
            try:
                message: Message = decoder.decode(line)
                return message
            except (msgspec.MsgspecError, UnicodeDecodeError, FedpaceError) as error:
                raise JournalError(_complaint(line, error)) from error
    raise JournalError(_complaint(line, f"a line begins with one of {', '.join(_FAMILIES)}"))


def decode_as(kind: type[T], data: bytes) -> T:
    """A record of this kind; JournalError where it is none."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, FedpaceError) as error:
        raise JournalError(_complaint(data, error, kind.__name__)) from error


def _complaint(line: bytes, reason: object, kind: str = "message") -> str:
    try:
        msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return "not JSON; it is cut or damaged"
    return f"this is no {kind}: {line[:500].decode(errors='replace').strip()} ({reason})"


def _is_finite(value: Any) -> bool:
    """False if a float in a record is infinite or NaN, which msgspec writes as null."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, tuple | list):
        return all(_is_finite(one) for one in value)
    if isinstance(value, dict):
        return all(_is_finite(one) for one in value.values())
    names: Any = getattr(value, "__struct_fields__", getattr(value, "__dataclass_fields__", ()))
    return all(_is_finite(getattr(value, name)) for name in names)
