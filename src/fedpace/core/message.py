"""Messages: frozen structs that are written as one line of JSON each, and how their fields default."""

from typing import Any

import msgspec


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, forbid_unknown_fields=True):
    """Part of a message: plain values only. Fields that are None are left out of its JSON."""


def always(default: Any) -> Any:
    """A default that is written out all the same.

    msgspec leaves out a value that is the very object of the default, so that a line would depend on
    where an equal string or float came from. None, True and False are one object each.
    """
    return msgspec.field(default_factory=lambda: default)
