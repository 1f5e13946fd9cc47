"""`fedpace new`: a folder with a config, a task, a policy and a README that run as they are."""

import json
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from fedpace.cli import shared
from fedpace.core.errors import ConfigError

FILES = ("README.md", "config.toml", "my_policy.py", "my_task.py")
NAME = "fedpace-new"
"""Stands for the folder's name in the files."""


def new(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that is not there yet, or is empty.")
    ],
) -> None:
    """Begin a study of your own, with files that run as they are.

    It writes config.toml, in which every key has a comment, my_policy.py, a scheduler, my_task.py, a
    model and data that it makes itself, and README.md, which has the commands to go on with.
    """
    write_starter(folder)
    shared.say(f"{folder} has {', '.join(FILES[:-1])} and {FILES[-1]}. Try it:")
    if folder.resolve() != Path.cwd():
        shared.say(f"  cd {shlex.quote(str(folder))}")
    shared.say("  fedpace compare config.toml")


def write_starter(folder: Path) -> None:
    """Write the files into a folder, which is made where it is not there."""
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; name a folder that is not there yet, or is empty")
    found = sorted(one.name for one in folder.iterdir()) if folder.exists() else []
    if found:
        rest = f" and {len(found) - 1} more" if len(found) > 1 else ""
        raise ConfigError(
            f"{folder} is not empty, it has {found[0]}{rest}; "
            "name a folder that is not there yet, or is empty"
        )
    folder.mkdir(parents=True, exist_ok=True)
    title = "".join(one if one.isprintable() else "-" for one in folder.resolve().name) or "study"
    for name in FILES:
        text = files("fedpace.cli.new").joinpath("files", name).read_text(encoding="utf-8")
        own = json.dumps(title, ensure_ascii=False)[1:-1] if name.endswith(".toml") else title
        (folder / name).write_text(text.replace(NAME, own), encoding="utf-8")
