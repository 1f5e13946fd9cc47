"""The command line: `fedpace run | compare | report | replay`, and what there is to choose from:
`policies | tasks | fleets | settings | data`; `plan` answers without a run. `serve | join | status |
drain | expel | stop | keys` are for real networks.
"""

import sys

import typer

from fedpace.cli import data, keys, listing, plan
from fedpace.cli.federation import drain, expel, join, serve, stop
from fedpace.cli.shared import complain
from fedpace.cli.simulation import StoppedByUser, compare, replay, report, run
from fedpace.cli.status import status
from fedpace.core.errors import FedpaceError
from fedpace.runs.plugins import Group

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
for command in (run, compare, serve, join, status, drain, expel, stop, report, replay):
    app.command()(command)


def _add_list(group: Group, what: str) -> None:
    help_text = f"List the {what}, each with its settings and their defaults."
    app.command(group, help=help_text)(lambda: listing.show(group))


_add_list("policies", "policies")
_add_list("tasks", "tasks")
_add_list("fleets", "kinds of fleets")
app.command("settings")(listing.show_config)


def main() -> None:
    """Errors of the user or the machine are one line and exit code 2; only bugs show a traceback.

    A run that diverged ends with 3, one in which nothing happened with 4, one that a signal stopped
    with 128 and its number.
    """
    try:
        app()
    except StoppedByUser as stop:
        _fail(str(stop), stop.code)
    except FedpaceError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'the disk'}: {error.strerror or error}")


def _fail(message: str, code: int = 2) -> None:
    complain(message)
    sys.exit(code)
