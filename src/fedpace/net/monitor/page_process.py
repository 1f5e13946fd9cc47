"""The process of an operators' page: told by its standard input what to serve, and who may enter.

The first line is what to serve, every other one a ticket; it ends when there are no more.
"""

import json
import os
import signal
import ssl
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from fedpace.core.errors import FedpaceError
from fedpace.net.keys.gate import Gate
from fedpace.net.keys.identity import Identity
from fedpace.report.live.access import OpenAccess, PageAccess, TicketAccess
from fedpace.report.live.http import LivePageServer
from fedpace.report.live.page import open_page

_NICE = 10
"""The federation's own processes come first."""


def main(told: IO[str], tell: IO[str]) -> None:
    """Serve until there is nothing more to be told."""
    try:
        server, admit = _open(json.loads(told.readline()))
    except (FedpaceError, OSError) as error:
        _say(tell, error=str(error))
        return
    server.start()
    _say(tell, port=server.port)
    for line in told:
        message = json.loads(line)
        admit(message["ticket"], message["who"])
    server.close()


def _open(what: dict[str, Any]) -> tuple[LivePageServer, Callable[[str, str], None]]:
    access: PageAccess
    tls, admit = None, _nobody
    if what["keys"] is None:
        access = OpenAccess()
    else:
        keys = Path(what["keys"])
        gate = Gate.open(keys, what["how"])
        tickets = TicketAccess(lambda who: gate.valid(read_identity(who)))
        access, tls, admit = tickets, PageTls(keys), tickets.admit
    folder = Path(what["folder"])
    server = open_page(folder, what["host"], what["port"], access=access, tls=tls, title=what["title"])
    return server, admit


class PageTls:
    """The TLS context of the page, with the server's certificate, read again when it is another."""

    def __init__(self, keys: Path) -> None:
        self._certificate, self._key = keys / "server.crt", keys / "server.key"
        self._lock = threading.Lock()
        self._seen: tuple[int, int] | None = None
        self._context = self._read()

    def __call__(self) -> ssl.SSLContext:
        with self._lock, suppress(OSError):  # what cannot be read now leaves things as they were
            self._context = self._read()
        return self._context

    def _read(self) -> ssl.SSLContext:
        found = self._certificate.stat()
        mark = found.st_mtime_ns, found.st_ino
        if mark == self._seen:
            return self._context
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(self._certificate, self._key)
        self._seen = mark
        return context


def read_identity(text: str) -> Identity:
    """An identity out of its JSON."""
    found = json.loads(text)
    return Identity(**found | {"until": datetime.fromisoformat(found["until"])})


def _nobody(ticket: str, who: str) -> None:
    """A page without keys has no tickets."""


def _say(tell: IO[str], **what: Any) -> None:
    tell.write(json.dumps(what) + "\n")
    tell.flush()


if __name__ == "__main__":
    # Ctrl-C and SIGTERM of a whole group are the server's to hear, which ends this by the pipe.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with suppress(OSError):
        os.nice(_NICE)
    main(sys.stdin, sys.stdout)
    os._exit(0)  # browsers may still be answered by threads
