"""Words that a shell completes: names of plugins, labels of a config, keys for --set."""

import os
import tomllib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from fedpace.runs import plugins
from fedpace.runs.plugins import Group


def complete_plugin(group: Group, incomplete: str) -> list[str]:
    """Names of a group of plugins that begin so."""
    return _beginning(plugins.names(group), incomplete)


def complete_policy(incomplete: str) -> list[str]:
    """Labels of the config on the command line, and names of policies."""
    return _beginning(_policies(), incomplete)


def complete_policies(incomplete: str) -> list[str]:
    """The same for a list with commas: its last entry."""
    before, comma, last = incomplete.rpartition(",")
    given = before.split(",")
    return [before + comma + one for one in _beginning(_policies(), last) if one not in given]


def complete_key(incomplete: str) -> list[str]:
    """Keys of a config, for KEY=VALUE."""
    from fedpace.cli.help.listing import settings_rows
    from fedpace.runs.config import Config

    return _beginning([f"{row.key}=" for row in settings_rows(Config)], incomplete)


def complete_grid_key(incomplete: str) -> list[str]:
    """Keys that a grid can vary for all policies, for KEY=A,B."""
    tables = ("train.", "server.", "stop.", "budget.")
    return [key for key in complete_key(incomplete) if key.startswith(tables)]


def complete_device(incomplete: str) -> list[str]:
    """Kinds of devices."""
    return _beginning(["cpu", "cuda"], incomplete)


def _policies() -> list[str]:
    """Labels and names, from the line as it stands: an option that lacks its value hides the rest."""
    labels: dict[str, object] = {}
    line = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    for word in line.split():
        if word.endswith(".toml"):
            with suppress(OSError, ValueError, TypeError):  # the command itself will say what is wrong
                labels |= tomllib.loads(Path(word).read_text(encoding="utf-8")).get("policies", {})
    return list(dict.fromkeys([*labels, *plugins.names("policies")]))


def _beginning(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete)]
