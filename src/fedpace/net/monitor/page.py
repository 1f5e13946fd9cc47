"""The operators' page of a served run, in a process of its own.

It reads the run's folder as `fedpace watch` does, and shares nothing with the server but a pipe for
tickets: neither journals of gigabytes nor slow browsers take time or memory of the federation. It ends
with the server.
"""

import json
import logging
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from cryptography.hazmat.primitives.hashes import SHA256

from fedpace.core.errors import ConfigError
from fedpace.net import federation_pb2 as pb
from fedpace.net.keys.gate import Gate
from fedpace.net.keys.identity import Identity
from fedpace.net.monitor.endpoint import watch_address
from fedpace.report.live.bounded import is_loopback

log = logging.getLogger("fedpace.server")

_END_S = 5.0


class PageProcess:
    """Serves the page of a folder's run at [HOST:]PORT until it is closed; ConfigError if it cannot.

    With keys only operators see it, each by a link of its own; without keys everybody who reaches it.
    """

    def __init__(self, address: str, gate: Gate, folder: Path, title: str) -> None:
        self.host, port = watch_address(address, "page", 8852)
        self._gate = gate
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedpace.net.monitor.page_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        keys = None if gate.folder is None else str(gate.folder.resolve())
        self._tell(
            {
                "host": self.host,
                "port": port,
                "folder": str(folder.resolve()),
                "title": title,
                "keys": keys,
                "how": gate.how,
            }
        )
        answer = self._process.stdout.readline() if self._process.stdout is not None else ""
        found = json.loads(answer) if answer else {"error": "its process has ended"}
        if "error" in found:
            self.close()
            raise ConfigError(f"the page cannot be served: {found['error']}")
        self.port = int(found["port"])

    def link(self, operator: Identity) -> pb.PageLink:
        """A link for an operator; ConfigError where the page's process has ended."""
        ticket, tls = secrets.token_urlsafe(24), self._gate.tls
        who = asdict(operator) | {"until": operator.until.isoformat()}
        self._tell({"ticket": ticket, "who": json.dumps(who)})
        shown = b"" if tls is None else tls.pair.certificate.fingerprint(SHA256())
        return pb.PageLink(host=self.host, port=self.port, ticket=ticket, fingerprint=shown.hex())

    def _tell(self, message: dict[str, Any]) -> None:
        try:
            with self._lock:
                pipe = self._process.stdin
                if pipe is None or self._process.poll() is not None:
                    raise BrokenPipeError
                pipe.write(json.dumps(message) + "\n")
                pipe.flush()
        except (OSError, ValueError):
            raise ConfigError(
                "the page's process has ended; start the server again for another"
            ) from None

    def close(self) -> None:
        """End the process; it ends by itself when its pipe is closed."""
        with self._lock:
            if self._process.stdin is not None:
                self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def operators_page(
    address: str | None, gate: Gate, folder: Path, title: str
) -> Iterator[PageProcess | None]:
    """The page at [HOST:]PORT while the block lasts; None: there is to be none."""
    if address is None:
        yield None
        return
    with PageProcess(address, gate, folder, title) as page:
        host = f"[{page.host}]" if ":" in page.host else page.host
        if gate.how is None:
            log.info("the page is on http://%s:%d", host, page.port)
            if not is_loopback(page.host):
                log.warning("%s can be reached from other machines: whoever does so can see it", host)
        else:
            log.info(
                "the page is on https://%s:%d; operators get a link by `fedpace page`", host, page.port
            )
        yield page
