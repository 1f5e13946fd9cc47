"""`fedpace keys init | client | revoke | list`: who may take part in a federation."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedpace.cli.shared import say
from fedpace.core.errors import needs_extra

if TYPE_CHECKING:
    from fedpace.net.keys.authority import Authority

app = typer.Typer(
    help="Certificates and tokens: who may take part in a federation.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

LOOPBACK = ("localhost", "127.0.0.1", "::1")
Keys = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the server's keys.")]
Days = Annotated[int | None, typer.Option(help="Days that what is made is valid [825].")]


@app.command("init")
def init_(
    host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME_OR_IP",
            help="Where clients find the server, besides localhost and this machine's name.",
        ),
    ] = None,
    days: Days = None,
    renew: Annotated[
        bool,
        typer.Option(
            "--renew",
            help="Only a new server certificate; with the hosts of the old one if none are given.",
        ),
    ] = False,
    keys: Keys = Path("keys"),
) -> None:
    """Make an authority and the server's certificate.

    Refused where there is one. With --renew clients keep what they have; the server needs a restart.
    """
    with needs_extra("net"):
        from fedpace.net.keys.authority import Authority
        from fedpace.net.keys.identity import DAYS, is_host
    valid = DAYS if days is None else days
    hosts = [*LOOPBACK, *filter(is_host, [socket.gethostname()]), *(host or ())]
    if renew:
        authority = Authority.open(keys)
        authority.renew(hosts if host else authority.server()[0], valid)
    else:
        authority = Authority.create(keys, hosts, valid)
    say(_server(authority))
    if renew:
        say("next: restart the server; clients need nothing new")
        return
    say("next: run `fedpace keys client NAME` for each client and move the folder to its machine")
    say(f"{keys / 'ca.key'} stays here and secret: who has it can take part under any name")


@app.command("client")
def client_(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Clients, one folder each.")],
    token: Annotated[
        bool, typer.Option("--token", help="A token instead of a certificate, for `serve` with tokens.")
    ] = False,
    days: Days = None,
    keys: Keys = Path("keys"),
) -> None:
    """Make a folder with which a client proves its name.

    Refused while the name has keys that are valid; revoke them first to replace them.
    """
    with needs_extra("net"):
        from fedpace.net.keys.authority import Authority
        from fedpace.net.keys.identity import DAYS
    authority = Authority.open(keys)
    for name in names:
        folder = authority.client(
            name, "token" if token else "certificate", DAYS if days is None else days
        )
        say(f"{folder}: for the machine of {name}; whoever has this folder is {name}, so move it there")


@app.command("revoke")
def revoke_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client.")], keys: Keys = Path("keys")
) -> None:
    """Shut a client out, at once and also from a server that is running."""
    with needs_extra("net"):
        from fedpace.net.keys.authority import Authority
    ended = Authority.open(keys).revoke(name)
    if not ended:
        say(f"{name} was revoked already; nothing has changed")
        return
    say(f"{name} is revoked ({', '.join(identity.kind for identity in ended)})")
    say(f"to let it in again: `fedpace keys client {name}`")


@app.command("list")
def list_(keys: Keys = Path("keys")) -> None:
    """All certificates and tokens that were made."""
    with needs_extra("net"):
        from fedpace.net.keys.authority import Authority
        from fedpace.net.keys.identity import day, utc_now
    authority = Authority.open(keys)
    now = utc_now()
    say(_server(authority))
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("name", overflow="fold")
    for column in ("kind", "valid until", "revoked"):
        table.add_column(column, no_wrap=True)
    for identity, since in authority.identities():
        until = day(identity.until) + (" (over)" if identity.until < now else "")
        table.add_row(identity.name, identity.kind, until, day(since) if since else "-")
    if table.row_count:
        Console(highlight=False, markup=False).print(table)
    else:
        say("no clients yet; run `fedpace keys client NAME`")


def _server(authority: "Authority") -> str:
    from fedpace.net.keys.identity import day

    hosts, until = authority.server()
    return (
        f"{authority.folder}: a server at {', '.join(hosts)} until {day(until)}; "
        f"authority until {day(authority.ca.certificate.not_valid_after_utc)}"
    )
