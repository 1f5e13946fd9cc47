"""Write the pages of commands and settings: what the command line prints about itself.

`python tools/site/commands.py FOLDER`, which `make docs` calls.
"""

import io
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from typer.main import get_command

from fedpace.cli.main import app
from fedpace.runs.plugins import Group, names

WIDTH = 80
GROUPS: dict[Group, str] = {"policies": "Policies", "tasks": "Tasks", "fleets": "Fleets"}


def main() -> None:
    os.environ["COLUMNS"] = str(WIDTH)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "commands.md").write_text(commands_page(), encoding="utf-8")
    (folder / "settings.md").write_text(settings_page(), encoding="utf-8")


def commands_page() -> str:
    """Every command's help, under a heading of its own."""
    parts = ["# Commands", "What `fedpace COMMAND --help` says."]
    for words, command in _commands(("fedpace",), get_command(app)):
        context = command.context_class(command, info_name=" ".join(words), terminal_width=WIDTH)
        parts += [f"## {' '.join(words)}", f"```text\n{command.get_help(context).strip()}\n```"]
    return "\n\n".join(parts) + "\n"


def settings_page() -> str:
    """What `fedpace settings` prints, and `fedpace policies | tasks | fleets NAME` of each."""
    parts = [
        "# Settings",
        "What `fedpace settings` prints, and `fedpace policies NAME` of every policy.",
    ]
    parts += ["## Keys of a config", _printed("settings")]
    for group, title in GROUPS.items():
        parts.append(f"## {title}")
        for name in names(group):
            parts += [f"### {name}", _printed(group, name)]
    return "\n\n".join(parts) + "\n"


def _commands(words: tuple[str, ...], command: Any) -> list[tuple[tuple[str, ...], Any]]:
    found = [(words, command)]
    for name, inner in getattr(command, "commands", {}).items():
        found += _commands((*words, name), inner)
    return found


def _printed(*words: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        app(words, standalone_mode=False)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    text = "\n".join(lines).strip("\n")
    return f"```text\n{text}\n```"


if __name__ == "__main__":
    main()
