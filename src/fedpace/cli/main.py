"""The command line: `fedpace new | run | compare | sweep | advise | watch | report | trace | export |
replay`; what can be chosen: `policies | tasks | fleets | settings | data`; `plan` needs no run.
`serve | join | status | page | drain | expel | stop | keys` are for real networks.
"""

import sys
from typing import Annotated

import typer

from fedpace.cli import data, keys, plan
from fedpace.cli.advise import advise
from fedpace.cli.export import export
from fedpace.cli.federation import drain, expel, join, serve, stop
from fedpace.cli.fleets import command as fleets
from fedpace.cli.help import listing
from fedpace.cli.help.completion import complete_plugin
from fedpace.cli.help.examples import add_examples
from fedpace.cli.new.command import new
from fedpace.cli.shared import complain
from fedpace.cli.simulation import StoppedByUser, compare, replay, report, run
from fedpace.cli.status import StatusCommand, status
from fedpace.cli.sweep import sweep
from fedpace.cli.trace import trace
from fedpace.cli.watch import page, watch
from fedpace.core.errors import FedpaceError
from fedpace.core.installed.package import package_version
from fedpace.runs.plugins import Group

app = typer.Typer(
    help="Federated learning on machines of very different speed: work is fitted to time.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.add_typer(plan.app, name="plan")
app.add_typer(keys.app, name="keys")
app.add_typer(fleets.app, name="fleets")
_SIMULATION = (new, run, compare, sweep, advise, watch, report, trace, export, replay)
_FEDERATION = (serve, join, page, drain, expel, stop)
for command in (*_SIMULATION, *_FEDERATION):
    app.command()(command)
app.command(cls=StatusCommand)(status)


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedpace {package_version()}")
        raise typer.Exit


@app.callback()
def options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of `fedpace` itself; its help is the app's."""


def _add_list(group: Group, one: str, what: str) -> None:
    def show(
        name: Annotated[
            str | None,
            typer.Argument(
                metavar="NAME",
                help=f"Say more about this {one}: what it does, and the values that settings take.",
                autocompletion=lambda incomplete: complete_plugin(group, incomplete),
            ),
        ] = None,
    ) -> None:
        if name is None:
            listing.show(group)
        else:
            listing.show_one(group, name)

    help_text = f"List {what} and their settings, or describe one."
    app.command(group, help=help_text)(show)


_add_list("policies", "policy", "policies")
_add_list("tasks", "task", "tasks")
app.command("settings")(listing.show_config)
add_examples(app)


def main() -> None:
    """Errors of the user or the machine are one line and exit code 2; only bugs show a traceback.

    A run that diverged ends with 3, one in which nothing happened with 4, one that a signal stopped
    with 128 and its number.
    """
    try:
        app(prog_name="fedpace")
    except StoppedByUser as stop:
        _fail(str(stop), stop.code)
    except FedpaceError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'the disk'}: {error.strerror or error}")


def _fail(message: str, code: int = 2) -> None:
    complain(message)
    sys.exit(code)
