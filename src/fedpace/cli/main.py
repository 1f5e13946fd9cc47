"""The command line: `fedpace run | compare | report | replay`, and what there is to choose from:
`policies | tasks | fleets | settings | data`; `plan` answers without a run. `serve | join | status |
keys` are for real networks.
"""

import sys

import typer

from fedpace.cli import data, keys, listing, plan
from fedpace.cli.federation import join, serve, status
from fedpace.cli.shared import complain
from fedpace.cli.simulation import StoppedByUser, compare, replay, report, run
from fedpace.core.errors import FedpaceError

app = typer.Typer(
    help="Federated learning on machines of very different speed: work is fitted to time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data.app, name="data")
app.add_typer(plan.app, name="plan")
app.add_typer(keys.app, name="keys")
for command in (run, compare, serve, join, status, report, replay):
    app.command()(command)


@app.command("policies")
def list_policies() -> None:
    """List the policies, each with its settings and their defaults."""
    listing.show("policies")


@app.command("tasks")
def list_tasks() -> None:
    """List the tasks, each with its settings and their defaults."""
    listing.show("tasks")


@app.command("fleets")
def list_fleets() -> None:
    """List the kinds of fleets, each with its settings and their defaults."""
    listing.show("fleets")


@app.command("settings")
def list_settings() -> None:
    """List every other table of a config file with its keys and their defaults."""
    listing.show_config()


def main() -> None:
    """Errors of the user or the machine are one line and exit code 2; only bugs show a traceback."""
    try:
        app()
    except StoppedByUser:
        _fail("stopped; go on with --resume", code=130)
    except FedpaceError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'the disk'}: {error.strerror or error}")


def _fail(message: str, code: int = 2) -> None:
    complain(message)
    sys.exit(code)
