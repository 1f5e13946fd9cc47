"""`fedpace watch | page`: the page of runs that are under way, in a browser."""

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedpace.cli import shared
from fedpace.cli.federation import Keys, ServerAddress, client_keys
from fedpace.core.errors import ConfigError, needs_extra

if TYPE_CHECKING:
    from fedpace.report.live.feed import LiveFeed

PORT = 8851
LINGER_S = 60.0
"""How long the page of runs that are over is served to nobody."""
_LOOK_S = 0.25
Open = Annotated[bool, typer.Option("--open", help="Open the page in a browser.")]


def watch(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="Folder of a run or of several, under way or over.")
    ],
    host: Annotated[
        str, typer.Option(help="Where to listen; other machines can reach it if it is not loopback.")
    ] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help=f"Port [{PORT}, or any that is free].")
    ] = None,
    open_: Open = False,
) -> None:
    """Show runs that are under way in a browser.

    Serves the page of a run or of a comparison, which grows with it, until all is over or Ctrl-C. Only
    journals are read: whoever runs there is not disturbed, and does not need to know.
    """
    from fedpace.report.live.access import KeyAccess
    from fedpace.report.live.bounded import is_loopback
    from fedpace.report.live.page import open_page

    if folder.is_file():
        raise ConfigError(f"{folder} is a file; give the folder of a run or of several")
    if not folder.is_dir():
        raise ConfigError(
            f"there is no folder {folder}; give that of a run or of several, under way or over"
        )
    access = KeyAccess()
    server = open_page(folder, host, port, PORT, access=access)
    link = f"{server.url}?key={access.key}"
    try:
        server.start()
        shared.say(f"{link} shows {folder}; Ctrl-C ends this page, and no run")
        if not is_loopback(host):
            shared.complain(
                f"{host} can be reached from other machines, without encryption: whoever has the link, "
                "or reads along, sees the run"
            )
        if open_:
            _open(link)
        _wait_for_the_end(server.feed)
    except KeyboardInterrupt:
        pass
    finally:
        server.close()


def _wait_for_the_end(feed: "LiveFeed") -> None:
    """Return when nothing goes on any more, and nobody has looked for a while."""
    over_at: float | None = None
    while over_at is None or time.monotonic() - max(over_at, feed.left_at) < LINGER_S or feed.readers:
        time.sleep(_LOOK_S)
        now = feed.state.runs
        if not now.over:
            over_at = None
        elif over_at is None:
            over_at = time.monotonic()
            shared.say(now.text)


def page(address: ServerAddress, keys: Keys = None, open_: Open = False) -> None:
    """Get an operator's link to a server's page.

    The server was started with --page. The link works once, in one browser, within five minutes.
    """
    with needs_extra("net"):
        from fedpace.runs.federation import ask_page_link
    from fedpace.report.live.bounded import is_loopback
    from fedpace.report.live.http import EVERYWHERE, page_url

    shown = client_keys(address, keys)
    found = asyncio.run(ask_page_link(address, shown))
    server = address.rpartition(":")[0].strip("[]")
    host = server if found.host in EVERYWHERE else found.host
    link = f"{page_url(host, found.port, secure=True)}?key={found.ticket}"
    shared.say(link)
    pairs = [found.fingerprint[place : place + 2] for place in range(0, len(found.fingerprint), 2)]
    shared.say_aside(f"its certificate's SHA-256: {':'.join(pairs).upper()}")
    if is_loopback(found.host) and not is_loopback(server):
        tunnel = f"ssh -N -L {found.port}:{found.host}:{found.port} {server}"
        shared.say_aside(f"the page is on the server's machine alone; reach it by: {tunnel}")
    if open_:
        _open(link)


def _open(link: str) -> None:
    import webbrowser

    webbrowser.open(link)
