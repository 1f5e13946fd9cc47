"""Options and steps that several commands share, and the two ways to print a message."""

import json
import logging
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedpace.cli.help.completion import (
    complete_device,
    complete_key,
    complete_policies,
    complete_policy,
)
from fedpace.core.errors import ConfigError
from fedpace.report.summary import Summary
from fedpace.report.trackers.settings import check_installed, find_place
from fedpace.runs import config as configs
from fedpace.runs.logs import logs_are_json
from fedpace.runs.paths import resolve_paths

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The run's configuration.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, such as stop.rounds=50; policies' own values too.",
        autocompletion=complete_key,
    ),
]
PolicyLabel = Annotated[
    str | None,
    typer.Option(help="Label in [policies] or a policy's name.", autocompletion=complete_policy),
]
PolicyLabels = Annotated[
    str | None, typer.Option(metavar="A,B,C", help="Labels or names.", autocompletion=complete_policies)
]
OutFolder = Annotated[Path | None, typer.Option(help="Folder for the results [below runs/].")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete what the folder holds first.")]
Device = Annotated[
    str,
    typer.Option(
        metavar="cpu|cuda|cuda:N", help="Where clients train.", autocompletion=complete_device
    ),
]
Jobs = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto", help="Runs at the same time [auto: one a core, up to 4 that share a GPU]."
    ),
]
Executor = Annotated[
    str, typer.Option(metavar="processes|ray", help="Whose they are: this machine's, a cluster's.")
]
TrackTo = Annotated[
    str | None,
    typer.Option(
        "--track",
        metavar="TRACKER",
        help="Same as --set track.to=TRACKER: show it meanwhile in tensorboard, mlflow or wandb.",
    ),
]
FLAGS = {
    "resume=True": "--resume",
    "mix=True": "--mix",
    "grid={'train.lr': [0.05, 0.1]}": "--grid train.lr=0.05,0.1",
    "overwrite=True": "--overwrite",
    "anywhere=True": "--anywhere",
    "device='cpu'": "--device cpu",
    "policies=['a', 'b']": "--policies a,b",
    "target=0.7": "--target 0.7",
    "fewer jobs": "fewer --jobs",
    "workers=1": "--workers 1",
    "jobs=1": "--jobs 1",
    "override '": "--set '",
}
"""Words of Python in errors, and the options that mean the same here."""
DIVERGED = 3
"""Exit status of a single run that has diverged."""
NOTHING_HAPPENED = 4
"""Exit status where a run ended without an update that was ever used."""


def load_config(config: Path, overrides: Sequence[str]) -> configs.Config:
    """Read a config; own policies and tasks may lie beside it or in the current folder."""
    sys.path[:0] = [str(config.resolve().parent), str(Path.cwd())]
    return configs.load(config, overrides)


def with_options(overrides: Sequence[str] | None, values: Mapping[str, Any]) -> list[str]:
    """Overrides of a config, and those that options stand for, by key; None: it was not given."""
    given = [f"{key}={json.dumps(value)}" for key, value in values.items() if value is not None]
    return [*(overrides or ()), *given]


def parse_jobs(text: str | None) -> int | None:
    """The number of --jobs; None: as many as suit the device."""
    if text is None or text == "auto":
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"--jobs is {text!r}; give a number from 1, or auto") from None


def split_names(text: str) -> list[str]:
    """Names between commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def policy_labels(text: str | None) -> list[str] | None:
    """The labels of --policies; None where it was not given."""
    labels = None if text is None else split_names(text)
    if labels == []:
        raise ConfigError("--policies names nobody; give labels or names, such as timelyfl,sync")
    return labels


def run_folder(*names: str) -> Path:
    """The folder below runs/ of a run with these names."""
    return Path("runs", *map(_slug, names))


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name.lower()).strip("-.") or "run"


def show_report(
    groups: dict[str, list[Summary]],
    folder: Path,
    targets: Sequence[float],
    title: str | None,
    metric: str | None = None,
    cells: Mapping[str, str] | None = None,
) -> None:
    """Print and write the report of runs by label. cells: of a grid, with their policies."""
    from fedpace.report.collection import write_report

    write_report(groups, folder, targets, Console(), title, metric, cells)


def say_trackers(config: configs.Config, folder: Path) -> None:
    """Say on stderr where a run can be seen in trackers while it goes on."""
    settings = resolve_paths(config.track, config.folder)
    check_installed(settings.trackers)
    for tracker in settings.trackers:
        say_aside(f"{tracker}: see it with: {find_place(tracker, settings, folder).look}")


def end_if_diverged(run: Summary) -> None:
    """Say in a line, and by the exit status, that a single run has diverged."""
    if run.diverged is not None:
        complain(f"{run.label}, seed {run.seed}: {run.finished}")
        raise typer.Exit(DIVERGED)


def end_if_nothing_happened(runs: Iterable[Summary]) -> None:
    """Say in a line for each run in which no update was used, and by the exit status, that it is so."""
    idle = [run for run in runs if run.nothing is not None]
    for run in idle:
        complain(
            f"{run.label}, seed {run.seed}: nothing happened: {run.nothing}; the model is untrained"
        )
    if idle:
        raise typer.Exit(NOTHING_HAPPENED)


def say(message: str) -> None:
    """Print a line as it is, however long."""
    Console().print(message, markup=False, highlight=False, soft_wrap=True)


def say_aside(message: str) -> None:
    """Print a line on stderr, where stdout is for what a script takes."""
    Console(stderr=True).print(message, markup=False, highlight=False, soft_wrap=True)


def in_flags(message: str) -> str:
    """A message of the library with the options of the command line in place of Python's arguments."""
    for words, flag in FLAGS.items():
        message = message.replace(words, flag)
    return message


def complain(message: str) -> None:
    """Print an error on stderr; log it where the logs are for programs."""
    message = in_flags(message)
    if logs_are_json():
        logging.getLogger("fedpace").error("%s", message)
        return
    Console(stderr=True).print(f"fedpace: {message}", markup=False, highlight=False, soft_wrap=True)
