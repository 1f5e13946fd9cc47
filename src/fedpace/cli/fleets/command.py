"""`fedpace fleets [NAME | COMMAND]`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from fedpace.cli import shared
from fedpace.cli.help import listing
from fedpace.cli.help.completion import complete_plugin
from fedpace.core.errors import ConfigError

FILE, STEM = "fleet.csv", "predicted"
SHOW = "show"
Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUN...", help="Folders of runs, or journals; served or simulated."),
]


class FleetsGroup(TyperGroup):
    """A group whose first word may also be the name of a kind of fleet."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = [SHOW, *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        kinds = self.commands[SHOW].params[0].shell_complete(ctx, incomplete)
        return [*super().shell_complete(ctx, incomplete), *kinds]


app = typer.Typer(
    cls=FleetsGroup,
    help="List kinds of fleets, describe one, or learn one from runs.",
    invoke_without_command=True,
    subcommand_metavar="[NAME | COMMAND]",
)


@app.callback()
def fleets(ctx: typer.Context) -> None:
    """List the kinds where nothing else is asked for."""
    if ctx.invoked_subcommand is None:
        listing.show("fleets")


@app.command(SHOW)
def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="A kind of fleet.",
            autocompletion=lambda incomplete: complete_plugin("fleets", incomplete),
        ),
    ],
) -> None:
    """Describe one kind of fleet; its name alone does, too."""
    listing.show_one("fleets", name)


@app.command()
def learn(
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Fleet file to write [FIRST RUN/fleet.csv]."),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Also repeat the runs in the simulator: predicted against real."),
    ] = False,
) -> None:
    """Make a fleet file of what runs have measured.

    It has compute, links, jitter and presence of each client. Several runs of the same clients are put
    together, one after the other.
    """
    from fedpace.fleet.learned.learn import learn_fleet
    from fedpace.runs.repeating.predict import settings_of

    journals = _journals(runs)
    found = learn_fleet(journals)
    file = out or _folder(runs[0]) / FILE
    found.write(file)
    for words in found.words:
        shared.say_aside(words)
    shared.say(f"{file}: {len(found.devices)} devices; to simulate with them, in a config:")
    shared.say("")
    shared.say(found.toml(str(file)))
    if check:
        shared.say("")
        _check(journals, settings_of(file, found.dropout), file.with_name(STEM))


@app.command("check")
def check_fleet(
    file: Annotated[Path, typer.Argument(metavar="FLEET.csv", help="A fleet file.")],
    runs: Runs,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="STEM", help="Figure and numbers, without a suffix [predicted]."
        ),
    ] = None,
) -> None:
    """Repeat runs in the simulator, with a fleet file.

    Shows predicted against real lengths of rounds. Each run's policy, settings and model are taken from
    its journal. Writes STEM.json, STEM.png and STEM.svg, by default beside the fleet file.
    """
    from fedpace.runs.repeating.predict import settings_of

    _check(_journals(runs), settings_of(file), out or file.with_name(STEM))


def _check(journals: Sequence[Path], settings: Any, stem: Path) -> None:
    from fedpace.core.host import write_whole
    from fedpace.runs.repeating.predict import predict_rounds

    sys.path.insert(0, str(Path.cwd()))  # for a policy of one's own
    found = [predict_rounds(path, settings) for path in journals]
    width = max(len(one.label) for one in found)
    for one in found:
        for words in one.words:
            shared.say_aside(words)
        rounds = "round" if len(one.real) == 1 else "rounds"
        shared.say(
            f"{one.label:{width}}  {len(one.real):4} {rounds}, the median {one.real_s:.4g} s, "
            f"predicted {one.predicted_s:.4g} s ({one.error:+.1%}); all together {one.total_error:+.1%}"
        )
    values = {"fleet": str(settings.file), "runs": [one.to_dict() for one in found]}
    paths = [stem.with_name(f"{stem.name}.json")]
    try:
        write_whole(paths[0], json.dumps(values, indent=1))
        from fedpace.report.predictions.figure import draw_predictions

        paths += draw_predictions(found, stem, "Lengths of rounds, real and predicted")
    except OSError as error:
        raise ConfigError(f"{stem} cannot be written: {error.strerror}; give another --out") from error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "matplotlib":
            raise
        shared.say("there is no figure: matplotlib is not installed; pip install matplotlib")
    for path in paths:
        shared.say(str(path))


def _journals(runs: Sequence[Path]) -> list[Path]:
    """The journals that are meant: files, or all below folders; each once."""
    from fedpace.report.collection import find_journals

    found = dict[Path, None]()
    for run in runs:
        found.update(dict.fromkeys([run] if run.is_file() else find_journals(run)))
    return list(found)


def _folder(run: Path) -> Path:
    return run if run.is_dir() else run.parent
