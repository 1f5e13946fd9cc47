"""Messages as lines of JSON: what `codec.dumps(codec.encode(message))` gives, in a third of the time.

For each kind of message a function is written once, as dataclasses writes `__init__`: it knows the
fields by name and has one f-string for the line. A value that is not of its field's type goes by way of
codec, which also says what is wrong with it.
"""

import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedpace.core import codec
from fedpace.core.codec import Message

_Writer = Callable[[Message], str | None]
_PLAIN = {
    int: ("{%s}", "type(%s) is int"),
    # JSON has no infinities, nor the difference of two.
    float: ("{%s!r}", "type(%s) is float and not %s - %s"),
    bool: ("{TRUE if %s else FALSE}", "type(%s) is bool"),
    str: ("{quote(%s)}", "type(%s) is str"),
}
"""How an f-string shows a variable of a plain type, and what tells that it is one."""
_OTHER = ("{dumps(%s)}", "%s is not None")


def as_line(message: Message) -> str:
    """One line of JSON, without its end; errors are those of codec."""
    kind: type = type(message)
    return _writer(kind)(message) or codec.dumps(codec.encode(message))


@cache
def _writer(kind: type) -> _Writer:
    """What writes messages of this kind; it gives None where a value is not what it should be."""
    source = _Source()
    family, name = codec.tag(kind)
    text = f'{{{{"{family}":"{name}"{source.fields(kind, "message")}}}}}'
    scope: dict[str, Any] = {
        "TRUE": "true",
        "FALSE": "false",
        "quote": encode_basestring_ascii,
        "dumps": codec.dumps_value,
        **source.kinds,
    }
    exec("\n    ".join(["def write(message):", *source.lines, f"return f'{text}'"]), scope)
    writer: _Writer = scope["write"]
    return writer


class _Source:
    """Python text that takes a message apart: one variable a field."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.kinds: dict[str, type] = {}
        """Classes that the text names."""
        self._variables = 0

    def fields(self, kind: type, owner: str) -> str:
        """Read the fields of a variable of this kind; what shows them in an f-string, commas first."""
        hints = get_type_hints(kind)
        return "".join(self._field(f"{owner}.{one.name}", hints[one.name]) for one in fields(kind))

    def _field(self, path: str, hint: Any) -> str:
        self._variables += 1
        name, value = path.rpartition(".")[2], f"v{self._variables}"
        self.lines.append(f"{value} = {path}")
        kind, optional = _kind(hint)
        if isinstance(kind, type) and is_dataclass(kind) and not optional:
            return f',"{name}":{self._object(kind, value)}'
        shown, right = (part.replace("%s", value) for part in _PLAIN.get(kind, _OTHER))
        if not optional:
            self.lines.append(f"if not ({right}): return None")
            return f',"{name}":{shown}'
        self.lines.append(f"if {value} is None: {value} = ''")
        self.lines.append(f"elif {right}: {value} = f',\"{name}\":{shown}'")
        self.lines.append("else: return None")
        return f"{{{value}}}"

    def _object(self, kind: type, value: str) -> str:
        self.kinds[kind.__name__] = kind
        self.lines.append(f"if type({value}) is not {kind.__name__}: return None")
        shown = self.fields(kind, value)
        if not shown.startswith(","):
            raise TypeError(f"the first field of {kind.__name__} may be left out; put another first")
        return "{{" + shown[1:] + "}}"


def _kind(hint: Any) -> tuple[Any, bool]:
    """The type that a hint is about, and if None is as good."""
    optional = get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)
    arms = [arm for arm in get_args(hint) if arm is not type(None)] if optional else [hint]
    kind = arms[0] if len(arms) == 1 else object
    if get_origin(kind) is Literal and all(isinstance(value, str) for value in get_args(kind)):
        kind = str
    return kind, optional
