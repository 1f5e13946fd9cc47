"""Docstrings that explain terms, as `name: what it is;` line by line, with a list of the terms."""

import re
from typing import Any

import griffe

NAMES = r"(?!Differs)[A-Za-z_][\w.]*(?:\([\w, ]*\))?(?: [\"']\w+[\"'])?(?:, [A-Za-z_][\w.]*)*: +(?=\S)"
TERM, LATER = re.compile(NAMES), re.compile(rf"; (?={NAMES})")


MESSAGES = {"Record", "_Event", "_Command"}
"""Bases of events, commands and their parts."""


class DocstringTerms(griffe.Extension):
    """Turn lines that begin with a term into items, for Markdown runs lines together."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = with_items(obj.docstring.value)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Show the fields of messages, of which nothing but their annotations is written."""
        if cls.docstring is not None and {str(base) for base in cls.bases} & MESSAGES:
            fields = [f"    {name}: {one.annotation}," for name, one in cls.attributes.items()]
            shown = "\n".join([f"{cls.name}(", *fields, ")"])
            cls.docstring.value += f"\n\n```python\n{shown}\n```"


def with_items(text: str) -> str:
    """The text, in which every line that begins with a term begins a list item."""
    head, *paragraphs = text.split("\n\n")
    return "\n\n".join([head, *map(_itemised, paragraphs)])


def _itemised(paragraph: str) -> str:
    shown: list[str] = []
    inside = False
    for line in (LATER.sub(";\n", paragraph) if TERM.match(paragraph) else paragraph).splitlines():
        match = None if line.startswith((" ", "-", "|", "`", ">")) else TERM.match(line)
        if match:
            names, text = line.split(": ", 1)
            if not inside and shown:
                shown.append("")
            inside = True
            shown.append(f"- `{names}`: {text}")
        else:
            shown.append(f"    {line}" if inside else line)
    return "\n".join(shown)
