"""Words for the type of a setting: what it takes, and in which range."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fedpace.core.errors import Allowed

_WORDS = {int: "whole number", float: "number", bool: "true or false", str: "text", Path: "path"}


def type_words(hint: Any) -> str:
    """A type of a settings field in words: "whole number, 1 or more", "fast | slow"."""
    if get_origin(hint) is Annotated:
        kind, *notes = get_args(hint)
        limits = [_range(note) for note in notes if isinstance(note, Allowed)]
        return ", ".join([type_words(kind), *limits])
    if get_origin(hint) is Literal:
        return " | ".join(map(str, get_args(hint)))
    if get_origin(hint) in (Union, UnionType):
        arms = [type_words(arm) for arm in get_args(hint) if arm is not NoneType]
        return " or ".join(dict.fromkeys(arms))
    if get_origin(hint) is tuple:
        return f"list of: {type_words(get_args(hint)[0])}"
    if get_origin(hint) in (dict, Mapping) or hint is dict or is_dataclass(hint):
        return "table"
    return _WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def _range(limit: Allowed) -> str:
    """The words of a limit, which go on from "set it", by themselves."""
    return limit.words.removeprefix("to ")
