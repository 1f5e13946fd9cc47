"""`fedpace export`: runs of before in an experiment tracker."""

from pathlib import Path
from typing import Annotated

import typer

from fedpace.cli import shared
from fedpace.core.errors import ConfigError, unknown


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of one run or of several.")],
    to: Annotated[
        str, typer.Option(metavar="tensorboard|mlflow|wandb", help="The tracker; several with commas.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where its files go [below DIR].")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Experiment or project [the name in the runs' config].")
    ] = None,
    uri: Annotated[
        str | None,
        typer.Option(help="MLflow's server or store [$MLFLOW_TRACKING_URI, else mlflow.db in DIR]."),
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="W&B: files only, for `wandb sync` later.")
    ] = False,
) -> None:
    """Show runs in an experiment tracker.

    Settings, metrics, bytes, money and who took part, from the journals of a folder: one experiment,
    with a run for each policy and seed. Once more adds only what is new.
    """
    from fedpace.report.collection import find_journals
    from fedpace.report.trackers.exporter import Trackers, export_run
    from fedpace.report.trackers.settings import TRACKERS, TrackSettings, check_installed, find_place

    for one in to.split(","):
        if one.strip() not in TRACKERS:
            raise unknown("tracker", one.strip(), TRACKERS)
    settings = TrackSettings(to=to, name=name, folder=out, uri=uri, offline=offline)
    journals = find_journals(folder)
    check_installed(settings.trackers)
    if out is not None and out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; give a folder")
    trackers = Trackers(settings, folder, strict=True)
    for journal in journals:
        export_run(journal.parent, trackers)
    count = f"{len(journals)} {'run' if len(journals) == 1 else 'runs'}"
    for tracker in settings.trackers:
        place = find_place(tracker, settings, folder)
        shared.say(f"{tracker}: {count} in {place.where}; see them with: {place.look}")
