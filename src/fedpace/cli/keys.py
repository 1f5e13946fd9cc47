"""`fedpace keys init | invite | enrol | request | sign | client | revoke | list | audit`.

Who may take part in a federation. `invite` and `sign` run on the server, `enrol` and `request` where
the private key is to live; `client` makes both halves in one place, for trials.
"""

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from fedpace.cli.shared import say, say_aside
from fedpace.core.errors import ConfigError, needs_extra

if TYPE_CHECKING:
    from fedpace.net.keys.authority import Authority

app = typer.Typer(
    help="Certificates and tokens: who may take part in a federation.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

LOOPBACK = ("localhost", "127.0.0.1", "::1")
Keys = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the server's keys.")]
OwnKeys = Annotated[Path, typer.Option("--keys", metavar="DIR", help="Folder of this machine's keys.")]
Operator = Annotated[
    bool, typer.Option("--operator", help="Keys that see everybody and give orders, and do not join.")
]
JoinTokenText = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="FEDPACE_JOIN_TOKEN",
        metavar="TOKEN",
        help="Made by `fedpace keys invite`; @FILE reads it from a file, which ps does not show.",
    ),
]
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

    Refused where there is one. With --renew clients keep what they have, and a server that runs shows
    the new certificate from then on.
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
        say("a server that runs shows it from now on; clients need nothing new")
        return
    say("next: run `fedpace keys invite NAME` for each client, and `fedpace join` there with its token")
    say("for trials on one machine: `fedpace keys client NAME` makes a folder with everything in it")
    say(f"{keys / 'ca.key'} stays here and secret: who has it can take part under any name")


@app.command("invite")
def invite_(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Members, one token each.")],
    hours: Annotated[float | None, typer.Option(help="Hours in which it can be used [24].")] = None,
    operator: Operator = False,
    days: Days = None,
    keys: Keys = Path("keys"),
) -> None:
    """Make a join token for one machine.

    With it the machine gets a certificate for a key of its own, once.
    Printed here and kept nowhere; an older token of the name counts no more.
    """
    with needs_extra("net"):
        from fedpace.net.keys.authority import HOURS, Authority
        from fedpace.net.keys.identity import DAYS, day
    authority = Authority.open(keys)
    for name in names:
        token, until = authority.invite(
            name,
            HOURS if hours is None else hours,
            DAYS if days is None else days,
            "operator" if operator else "client",
        )
        verb = "keys enrol" if operator else "join"
        say_aside(f"{name}, until {day(until)}: `fedpace {verb} HOST:PORT --token ...` there")
        say(token)


@app.command("enrol")
def enrol_(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the server listens.")],
    token: JoinTokenText,
    keys: OwnKeys = Path("keys"),
) -> None:
    """Make a private key here, and get its certificate by a token.

    `fedpace join --token` does so, too, and then takes part; this is for operators, or to do it before.
    """
    with needs_extra("net"):
        from fedpace.runs.federation import enrol
    found = enrol(address, read_join_token(token), keys)
    say(f"{keys}: this machine is {found.name}")


@app.command("request")
def request_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name that is asked for.")],
    keys: OwnKeys = Path("keys"),
) -> None:
    """Make a private key here, and a request to sign it."""
    with needs_extra("net"):
        from fedpace.net.enrolment import request_keys
    path = request_keys(keys, name)
    say(f"{path}: for the operator, who runs `fedpace keys sign {path.name}`; it is not secret")
    say(
        f"{keys / 'client.key'} stays here and secret; put the answer, ca.crt and client.crt, beside it"
    )


@app.command("sign")
def sign_(
    requests: Annotated[
        list[Path], typer.Argument(metavar="REQUEST.csr", help="Made by `fedpace keys request`.")
    ],
    name: Annotated[
        str | None, typer.Option(help="Instead of the name that the request asks for.")
    ] = None,
    operator: Operator = False,
    days: Days = None,
    keys: Keys = Path("keys"),
) -> None:
    """Sign the requests of members that have made their own keys."""
    with needs_extra("net"):
        from fedpace.net.keys.authority import Authority
        from fedpace.net.keys.identity import DAYS, read_file
    if name is not None and len(requests) > 1:
        raise ConfigError("--name is for one request; leave it out, or sign one at a time")
    authority = Authority.open(keys)
    for path in requests:
        folder = authority.answer(
            read_file(path, "make it with `fedpace keys request NAME`"),
            DAYS if days is None else days,
            "operator" if operator else "client",
            name,
        )
        say(f"{folder}: ca.crt and client.crt for {folder.name}, to lie beside its client.key")


@app.command("client")
def client_(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Clients, one folder each.")],
    token: Annotated[
        bool, typer.Option("--token", help="A token instead of a certificate, for `serve` with tokens.")
    ] = False,
    operator: Operator = False,
    days: Days = None,
    keys: Keys = Path("keys"),
) -> None:
    """Make a folder of keys for a client; for trials.

    Its private key is in it.
    Whoever has seen the folder can be that client. `invite` and `request` leave keys where they are.
    Refused while the name has keys that are valid; revoke them first to replace them.
    """
    with needs_extra("net"):
        from fedpace.net.keys.authority import Authority
        from fedpace.net.keys.identity import DAYS
    authority = Authority.open(keys)
    for name in names:
        folder = authority.client(
            name,
            "token" if token else "certificate",
            DAYS if days is None else days,
            "operator" if operator else "client",
        )
        say(f"{folder}: for the machine of {name}; whoever has this folder is {name}, so move it there")
    say("for trials: a private key that was made here; `fedpace keys invite` leaves it with its owner")


@app.command("revoke")
def revoke_(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The client.")], keys: Keys = Path("keys")
) -> None:
    """Shut a client out, also from a server that is running."""
    with needs_extra("net"):
        from fedpace.net.keys.authority import Authority
    ended = Authority.open(keys).revoke(name)
    if not ended:
        say(f"{name} was revoked already; nothing has changed")
        return
    say(f"{name} is revoked ({', '.join(identity.kind for identity in ended)})")
    say(f"to let it in again: `fedpace keys invite {name}`, or `fedpace keys client {name}`")


@app.command("list")
def list_(keys: Keys = Path("keys")) -> None:
    """List all certificates and tokens that were made."""
    with needs_extra("net"):
        from fedpace.net.keys.authority import Authority
        from fedpace.net.keys.identity import day, ends_soon, utc_now
        from fedpace.net.keys.joining import read_invitations
    authority = Authority.open(keys)
    now = utc_now()
    say(_server(authority))
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("name", overflow="fold")
    for column in ("kind", "valid until", "revoked", "role"):
        table.add_column(column, no_wrap=True)
    for identity, since in authority.identities():
        left = (
            " (over)" if identity.until < now else " (soon)" if ends_soon(identity.until, now) else ""
        )
        ended = day(since) if since else "-"
        until = day(identity.until) + left
        table.add_row(identity.name, identity.kind, until, ended, identity.role)
    for one in read_invitations(keys):
        if one.is_open(now) and not one.key:
            table.add_row(one.name, "join token", day(one.until), "-", one.role)
    if table.row_count:
        Console(highlight=False, markup=False).print(table)
    else:
        say("no clients yet; run `fedpace keys invite NAME`")


@app.command("audit")
def audit_(keys: Keys = Path("keys")) -> None:
    """Show who enrolled, signed, revoked or stopped, and when.

    Also who expelled or drained a member, and from where.
    """
    with needs_extra("net"):
        from fedpace.net.keys.audit import read_audit
    for line in read_audit(keys):
        rest = ", ".join(f"{k} {v}" for k, v in line.items() if k not in ("at", "what", "who", "from"))
        say(f"{line.get('at')} {line.get('who')} ({line.get('from')}) {line.get('what')}: {rest}")


def read_join_token(text: str) -> str:
    """The token, or what is in the file that @FILE names."""
    if not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{text[1:]} cannot be read: {error}; it should hold a join token") from error


def _server(authority: "Authority") -> str:
    from fedpace.net.keys.identity import day

    hosts, until = authority.server()
    return (
        f"{authority.folder}: a server at {', '.join(hosts)} until {day(until)}; "
        f"authority until {day(authority.ca.certificate.not_valid_after_utc)}"
    )
