"""Lists of plugins and settings, read off the settings classes themselves."""

import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, Field, dataclass, is_dataclass, replace
from inspect import cleandoc
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer
from rich.console import Console
from rich.text import Text

from fedpace.cli.help.setting_types import type_words
from fedpace.core.errors import unknown
from fedpace.runs import plugins
from fedpace.runs.config import Config, keys
from fedpace.runs.plugins import Group

_WIDEST_HEAD = 30
"""Columns for keys and defaults; a longer one has a line of its own, so that texts stay readable."""
_TABLES = {"policies": "policies.{}", "tasks": "task", "fleets": "fleet"}


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A key with its default as it would stand in a file, None: unset, MISSING: there must be one.

    kind: values that it takes, in words.
    """

    key: str
    default: Any
    kind: str
    text: str

    @property
    def head(self) -> str:
        if self.default is None or self.default is MISSING:
            return f"{self.key} ({'unset' if self.default is None else 'required'})"
        return f"{self.key} = {_toml(self.default)}"


def show(group: Group) -> None:
    """Print every plugin of a group with its settings; those that all have only once."""
    console = Console(highlight=False)
    kinds = {name: plugins.load(group, name) for name in plugins.names(group)}
    rows = {name: settings_rows(kind.Settings) for name, kind in kinds.items()}
    shared = _in_all(list(rows.values()))
    for name, kind in kinds.items():
        _print_title(console, name, _first_line(kind))
        own = [row for row in rows[name] if row not in shared]
        _print_rows(console, own)
        console.print()
    if shared:
        _print_title(console, "settings of all of them", "")
        _print_rows(console, shared)
        console.print()
    console.print(f"More about one, with the values that settings take: fedpace {group} NAME")
    if group == "policies":
        console.print("Which one for your fleet, data and aim: fedpace advise CONFIG, docs/choosing.md")


def show_one(group: Group, name: str) -> None:
    """Print what a plugin does, from its docstrings, and its settings with the values they take."""
    sys.path.insert(0, str(Path.cwd()))
    kind = plugins.load(group, name)
    console = Console(highlight=False)
    _print_title(console, name, _first_line(kind))
    for text in (_rest(kind.__doc__), sys.modules[kind.__module__].__doc__):
        _print_paragraphs(console, text or "")
    rows = settings_rows(kind.Settings)
    table = _TABLES[group].format(name if ":" not in name else "LABEL")
    console.print()
    console.print(Text(f"Settings, under [{table}]:" if rows else "It has no settings of its own."))
    _print_long(console, rows)
    if group == "policies":
        _print_paragraphs(
            console,
            "Tables train, server, stop and budget in the same place override the run's, such as "
            f"train.lr; another label than its name needs use = {_toml(name)}.",
        )


def show_config(
    table: Annotated[
        str | None,
        typer.Argument(metavar="TABLE", help="Only this table, such as train, in more words."),
    ] = None,
) -> None:
    """List the keys of a config file with their defaults.

    Policies, tasks and fleets have lists of their own: fedpace policies | tasks | fleets.
    """
    console, rows = Console(highlight=False), settings_rows(Config)
    if table is None:
        _print_rows(console, rows)
        console.print("\nOne table, with the values that its keys take: fedpace settings TABLE")
        return
    name = table.strip("[]")
    chosen = [row for row in rows if row.key.startswith(f"{name}.") or row.key == name]
    if not chosen:
        raise unknown("table or key", name, {row.key.split(".")[0] for row in rows})
    _print_long(console, chosen)


def settings_rows(kind: type[Any], prefix: str = "", given: Any = None) -> list[SettingRow]:
    """A row for each field, nested tables included as `table.key`.

    given: settings whose values are the defaults, as an outer table has them. Where one class of
    settings is in two places, the second refers to the first.
    """
    hints = get_type_hints(kind, include_extras=True)
    rows: list[SettingRow] = []
    first: dict[type[Any], str] = {}
    for item in keys(kind):
        hint, text = _split(hints[item.name])
        default = getattr(given, item.name, _default(item))
        key = prefix + item.name
        if is_dataclass(hint) and isinstance(hint, type):
            inner = settings_rows(hint, f"{key}.", default)
            if hint in first:
                before = first[hint]
                inner = [replace(row, text=f"as {before}{row.key[len(key) :]}") for row in inner]
            first.setdefault(hint, key)
            rows += inner
        else:
            rows.append(SettingRow(key, default, type_words(hints[item.name]), text))
    return rows


def _in_all(lists: Sequence[Sequence[SettingRow]]) -> list[SettingRow]:
    """Rows that are the same in all lists; none of a single one."""
    if len(lists) < 2:
        return []
    return [row for row in lists[0] if all(row in other for other in lists[1:])]


def _print_title(console: Console, name: str, text: str) -> None:
    said = f"{name}: {text}" if text else f"{name}:"
    first, *rest = textwrap.wrap(said, console.width, subsequent_indent="  ", break_on_hyphens=False)
    console.print(Text.assemble((first[: len(name)], "bold"), first[len(name) :]))
    for line in rest:
        console.print(Text(line))


def _print_rows(console: Console, rows: Iterable[SettingRow]) -> None:
    """A line a key with the text beside it; the choices of one that has some are part of it."""
    rows = list(rows)
    if not rows:
        console.print("  (no settings of its own)")
        return
    heads = [f"  {row.head}" for row in rows]
    widest = max((len(head) for head in heads if len(head) <= _WIDEST_HEAD), default=_WIDEST_HEAD)
    indent = " " * (widest + 2)
    for row, head in zip(rows, heads, strict=True):
        text = f"{row.text} ({row.kind})" if _has_choices(row) else row.text
        lines = _wrapped(text, console.width, indent)
        if len(head) > widest:
            console.print(Text(head, "cyan"))
        elif lines:
            console.print(Text.assemble((head.ljust(widest + 2), "cyan"), lines.pop(0).strip()))
        else:
            console.print(Text(head, "cyan"))
        for line in lines:
            console.print(Text(line))


def _print_long(console: Console, rows: Iterable[SettingRow]) -> None:
    """Two paragraphs a key: default and values that it takes, then the text."""
    for row in rows:
        head, indent = f"  {row.head}", " " * 6
        if len(head) + 2 + len(row.kind) <= console.width:
            console.print(Text.assemble((head, "cyan"), f": {row.kind}"))
        else:
            console.print(Text.assemble((head, "cyan"), ":"))
            console.print(Text("\n".join(_wrapped(row.kind, console.width, indent))))
        for line in _wrapped(row.text, console.width, indent):
            console.print(Text(line))


def _print_paragraphs(console: Console, text: str) -> None:
    """Paragraphs in the width of the terminal; what is indented, as formulas are, stays as it is."""
    for paragraph in cleandoc(text).split("\n\n"):
        if not paragraph.strip():
            continue
        console.print()
        if paragraph.startswith(" "):
            console.print(Text(paragraph), soft_wrap=True)
        else:
            console.print(Text("\n".join(_wrapped(" ".join(paragraph.split()), console.width, "  "))))


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    width = max(width, len(indent) + 20)
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _has_choices(row: SettingRow) -> bool:
    return " | " in row.kind and not row.text.startswith("as ")


def _split(hint: Any) -> tuple[Any, str]:
    if get_origin(hint) is not Annotated:
        return hint, ""
    kind, *notes = get_args(hint)
    return kind, next((note for note in notes if isinstance(note, str)), "")


def _default(item: "Field[Any]") -> Any:
    """The default, MISSING where there is none."""
    return item.default_factory() if item.default_factory is not MISSING else item.default


def _toml(value: Any) -> str:
    """A value as it would stand in the file."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        pairs = ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{ }"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str | Path) else str(value)


def _first_line(kind: type[Any]) -> str:
    return (kind.__doc__ or "").strip().partition("\n")[0]


def _rest(text: str | None) -> str:
    return cleandoc(text or "").partition("\n")[2]
