"""Places in code: the file and line where a policy, or what else a user has written, went wrong."""

import inspect
import os
import traceback
from collections.abc import Collection, Iterable
from pathlib import Path
from types import FrameType, GeneratorType
from typing import Any

OURS = str(Path(__file__).parents[2])
"""Folder of this package: its own lines are not where a user looks first."""


def place_of_error(error: BaseException, files: Collection[str] = ()) -> str | None:
    """`file.py:12, in name` of the innermost call in one of `files`, else outside of this package.

    None where there is no such call. A file that cannot be compiled is named with its own line.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_short(error.filename)}:{error.lineno}"
    calls = traceback.extract_tb(error.__traceback__)
    own = [one for one in calls if one.filename in files]
    others = [one for one in calls if not one.filename.startswith((OURS, "<frozen "))]
    found = (own or others)[-1:]
    return f"{_short(found[0].filename)}:{found[0].lineno}, in {found[0].name}" if found else None


def place_of_yield(answers: Any) -> str | None:
    """The line at which a generator waits, or the one that it hands on from; None for others."""
    frame: FrameType | None = None
    while isinstance(answers, GeneratorType):
        frame, answers = answers.gi_frame or frame, answers.gi_yieldfrom
    if frame is None:
        return None
    return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno}, in {frame.f_code.co_name}"


def place_of_function(function: Any) -> str | None:
    """The line at which a function begins; None for one of fedpace.core, or not written in Python."""
    code = getattr(inspect.unwrap(function), "__code__", None) if callable(function) else None
    if code is None or code.co_filename.startswith(os.path.join(OURS, "core")):
        return None
    return f"{_short(code.co_filename)}:{code.co_firstlineno}, in {code.co_name}"


def files_of(kinds: Iterable[type[Any]]) -> set[str]:
    """Files, or cells of a notebook, with the functions of classes, those of fedpace.core left out."""
    own = (kind for kind in kinds if not kind.__module__.startswith("fedpace.core."))
    functions = (value for kind in own for value in vars(kind).values())
    codes = (getattr(one, "__code__", None) for one in functions)
    return {code.co_filename for code in codes if code is not None}


def _short(name: str) -> str:
    """The path from the current folder where it lies below, else as it is."""
    try:
        path = os.path.relpath(name)
    except (ValueError, OSError):  # another drive, or the folder is gone
        return name
    return name if path.startswith("..") or name.startswith("<") else path
