"""Lists of plugins and settings, read off the settings classes themselves."""

from dataclasses import MISSING, Field, is_dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from rich.console import Console
from rich.table import Table
from rich.text import Text

from fedpace.runs import plugins
from fedpace.runs.config import Config, keys
from fedpace.runs.plugins import Group


def show(group: Group) -> None:
    """Print every plugin of a group with its settings."""
    console = Console(highlight=False)
    for name in plugins.names(group):
        kind = plugins.load(group, name)
        console.print(Text.assemble((name, "bold"), "  ", _first_line(kind)))
        _print_settings(console, kind.Settings)


def show_config() -> None:
    """List every other table of a config file with its keys and their defaults."""
    _print_settings(Console(highlight=False), Config)


def _print_settings(console: Console, kind: type[Any]) -> None:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(no_wrap=True)
    table.add_column()
    for row in settings_rows(kind):
        table.add_row(*map(Text, row))
    console.print(table if table.row_count else "  (no settings)")
    console.print()


def settings_rows(kind: type[Any], prefix: str = "", given: Any = None) -> list[tuple[str, str, str]]:
    """(key, default, help) of each field, nested tables included as `table.key`.

    given: settings whose values are the defaults, as an outer table has them.
    """
    hints = get_type_hints(kind, include_extras=True)
    rows: list[tuple[str, str, str]] = []
    for item in keys(kind):
        hint, text = _split(hints[item.name])
        default = getattr(given, item.name, _default(item))
        if is_dataclass(hint) and isinstance(hint, type):
            rows += settings_rows(hint, f"{prefix}{item.name}.", default)
        else:
            choices = get_args(hint) if get_origin(hint) is Literal else ()
            note = f"{text} ({' | '.join(map(str, choices))})" if choices else text
            rows.append((prefix + item.name, _text(default), note))
    return rows


def _split(hint: Any) -> tuple[Any, str]:
    if get_origin(hint) is not Annotated:
        return hint, ""
    kind, *notes = get_args(hint)
    return kind, next((note for note in notes if isinstance(note, str)), "")


def _default(item: "Field[Any]") -> Any:
    """The default, MISSING where there is none."""
    return item.default_factory() if item.default_factory is not MISSING else item.default


def _text(value: Any) -> str:
    """A value as it would stand in the file."""
    if value is None or value is MISSING:
        return "-" if value is None else "required"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        pairs = ", ".join(f"{key} = {_text(inner)}" for key, inner in value.items())
        return f"{{ {pairs} }}" if pairs else "{ }"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_text, value))}]"
    return str(value)


def _first_line(kind: type[Any]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0] if kind.__doc__ else ""
