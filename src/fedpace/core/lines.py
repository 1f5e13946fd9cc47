"""Messages as lines of JSON: what `codec.dumps(codec.encode(message))` gives, in a fifth of the time.

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

_Texts = dict[int, tuple[Any, str]]
_Writer = Callable[[Any], str | None]
"""Gives None where a value is not what it should be."""
MOST_TEXTS = 640
_PLAIN = {
    int: ("{%s}", "type(%s) is int"),
    # JSON has no infinities, nor the difference of two.
    float: ("{%s!r}", "type(%s) is float and not %s - %s"),
    bool: ("{TRUE if %s else FALSE}", "type(%s) is bool"),
    str: ("{quote(%s)}", "type(%s) is str"),
    tuple[int, ...]: ("[{ints(%s)}]", "are_ints(%s)"),
    tuple[float, ...]: ("[{floats(%s)}]", "are_floats(%s)"),
}
"""How an f-string shows a variable of a plain type, and what tells that it is one."""
_OTHER = ("{dumps(%s)}", "%s is not None")


class Lines:
    """Writes the lines of one journal.

    Messages hold others: work that many clients are given, rates of devices that come again. Their
    texts are kept while there is room, by identity: nothing in them ever changes.
    """

    def __init__(self) -> None:
        self._writers: dict[type, _Writer] = {}
        self._texts: _Texts = {}
        """By the id of what they are of, which is kept with them: no other can get it."""

    def of(self, message: Message) -> str:
        """One line of JSON, without its end; errors are those of codec."""
        kind: type = type(message)
        writer = self._writers.get(kind)
        if writer is None:
            writer = self._writers[kind] = _made(kind)(self._texts)
        return writer(message) or codec.dumps(codec.encode(message))


@cache
def _made(kind: type) -> Callable[[_Texts], _Writer]:
    """What makes a writer of messages of this kind that looks for texts in a store."""
    family, name = codec.tag(kind)
    source = _Source()
    text = f'{{{{"{family}":"{name}"{source.fields(kind)}}}}}'
    return source.made(text)


@cache
def _made_part(kind: type) -> Callable[[_Texts], _Writer]:
    """The same for what is a part of messages."""
    source = _Source()
    shown = source.fields(kind)
    if not shown.startswith(","):
        raise TypeError(f"the first field of {kind.__name__} may be left out; put another first")
    return source.made("{{" + shown[1:] + "}}")


def _keeper(kind: type, texts: _Texts) -> Callable[[Any], tuple[Any, str] | None]:
    """What writes a part of a message, and keeps it."""
    write = _made_part(kind)(texts)

    def keep(part: Any) -> tuple[Any, str] | None:
        text = write(part) if type(part) is kind else None
        if text is None:
            return None
        if len(texts) < MOST_TEXTS:
            texts[id(part)] = part, text
        return part, text

    return keep


def _ints(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


def _are_ints(values: Any) -> bool:
    return type(values) is tuple and set(map(type, values)) <= {int}


def _floats(values: tuple[float, ...]) -> str:
    """Each of them once where they repeat, as weights do: a float takes longest to write."""
    different = set(values)
    if 0.0 in different:  # equal to -0.0, but not written like it
        return ",".join(map(repr, values))
    texts = {value: repr(value) for value in different}
    return ",".join([texts[value] for value in values])


def _are_floats(values: Any) -> bool:
    """Finite ones, as of all floats; a sum that is not finite says nothing, and codec is asked."""
    if type(values) is not tuple or not set(map(type, values)) <= {float}:
        return False
    total = sum(values)
    return not total - total


class _Source:
    """Python text that takes a message apart: one variable a field."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._parts: dict[str, type] = {}
        """Names of what keeps the parts that the text knows, and their kinds."""

    def fields(self, kind: type) -> str:
        """Read the fields of `message`; what shows them in an f-string, commas first."""
        hints = get_type_hints(kind)
        return "".join(self._field(one.name, hints[one.name]) for one in fields(kind))

    def made(self, text: str) -> Callable[[_Texts], _Writer]:
        """The function of a store of texts that gives the function of a message."""
        scope: dict[str, Any] = {
            "TRUE": "true",
            "FALSE": "false",
            "quote": encode_basestring_ascii,
            "dumps": codec.dumps_value,
            "ints": _ints,
            "floats": _floats,
            "are_ints": _are_ints,
            "are_floats": _are_floats,
            "keeper": _keeper,
        }
        lines = ["def make(texts):"]
        for name, kind in self._parts.items():
            scope[kind.__name__] = kind
            lines.append(f" {name} = keeper({kind.__name__}, texts)")
        lines += [" def write(message):", *(f"  {line}" for line in self._lines)]
        exec("\n".join([*lines, f"  return f'{text}'", " return write"]), scope)
        make: Callable[[_Texts], _Writer] = scope["make"]
        return make

    def _field(self, name: str, hint: Any) -> str:
        value = f"v_{name}"
        self._lines.append(f"{value} = message.{name}")
        kind, optional = _kind(hint)
        if isinstance(kind, type) and is_dataclass(kind) and not optional:
            self._parts[f"keep_{name}"] = kind
            self._lines.append(f"{value} = texts.get(id({value})) or keep_{name}({value})")
            self._lines.append(f"if {value} is None: return None")
            return f',"{name}":{{{value}[1]}}'
        shown, right = (part.replace("%s", value) for part in _PLAIN.get(kind, _OTHER))
        if not optional:
            self._lines.append(f"if not ({right}): return None")
            return f',"{name}":{shown}'
        self._lines.append(f"if {value} is None: {value} = ''")
        self._lines.append(f"elif {right}: {value} = f',\"{name}\":{shown}'")
        self._lines.append("else: return None")
        return f"{{{value}}}"


def _kind(hint: Any) -> tuple[Any, bool]:
    """The type that a hint is about, and if None is as good."""
    optional = get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)
    arms = [arm for arm in get_args(hint) if arm is not type(None)] if optional else [hint]
    kind = arms[0] if len(arms) == 1 else object
    if get_origin(kind) is Literal and all(isinstance(value, str) for value in get_args(kind)):
        kind = str
    return kind, optional
