"""HTTP for those who watch a server: /healthz, /readyz and /metrics, on a port of its own.

In threads of its own, so that it answers when the server hangs, and says so. Nobody proves who he is
here: it shows counts, and names only where that was asked for. It is on this machine alone unless a
host is given.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

from fedpace.core.errors import ConfigError, needs_extra
from fedpace.core.installed.package import package_version
from fedpace.net.monitor.snapshot import RunSnapshot, RunWatch
from fedpace.report.live.bounded import BoundedHttpServer, is_loopback

log = logging.getLogger("fedpace.server")

UNHEALTHY_S = 30.0
"""A state that is older says that the server hangs."""
MOST_AT_ONCE = 8
"""Requests at a time; more are shut down at once."""
REQUEST_S = 5.0
"""How long a request may take to come, and its answer to be taken."""


def watch_address(text: str, what: str = "metrics", example: int = 9464) -> tuple[str, int]:
    """Host and port of [HOST:]PORT; this machine where there is no host. ConfigError for others."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    if not port.isdigit() or not 0 <= int(port) < 65536:
        raise ConfigError(
            f"{what} is {text!r}; give [HOST:]PORT, such as {example} or 10.0.0.5:{example}"
        )
    return host, int(port)


class WatchEndpoint:
    """Answers until it is closed. latest: the state to tell of; metrics: makes the page of metrics."""

    def __init__(self, address: str) -> None:
        with needs_extra("net"):
            from fedpace.net.monitor.metrics import RunMetrics
        self._kind = RunMetrics
        host, port = watch_address(address)
        self.latest: Callable[[], RunSnapshot | None] = lambda: None
        self.metrics: Callable[[], bytes] = lambda: b""
        try:
            self._http = _Http((host, port), self)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served on {host}:{port}: {error.strerror or error}; "
                "give another address"
            ) from error
        self.host, self.port = host, int(self._http.server_address[1])
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()

    def show(self, watch: RunWatch, name: str, policy: str) -> None:
        """Tell of a run from now on."""
        self.latest = lambda: watch.latest
        self.metrics = self._kind(self.latest, package_version(), name, policy).text

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def health(self) -> tuple[bool, dict[str, Any]]:
        """True while the server lives, and what is known."""
        now = self.latest()
        if now is None:
            return True, {"state": "starting"}
        age_s = time.monotonic() - now.taken_at
        lives = age_s < UNHEALTHY_S
        found: dict[str, Any] = {"state": now.state, "state_age_s": round(age_s, 3)}
        return lives, found if lives else found | {"fault": "the event loop does not turn"}

    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """True while clients can take part and what they do is kept, and why not."""
        lives, found = self.health()
        now = self.latest()
        if now is None or not lives:
            return False, found
        if now.journal_fault:
            return False, found | {"fault": f"the journal cannot be written: {now.journal_fault}"}
        return now.state != "over", found | {"clients": now.clients}


@contextmanager
def watch_endpoint(address: str | None) -> Iterator[WatchEndpoint | None]:
    """An endpoint at [HOST:]PORT while the block lasts; None: there is to be none."""
    if address is None:
        yield None
        return
    with WatchEndpoint(address) as endpoint:
        log.info("health and metrics on http://%s:%d", endpoint.host, endpoint.port)
        if not is_loopback(endpoint.host):
            log.warning(
                "%s can be reached from other machines: whoever does so can read the metrics",
                endpoint.host,
            )
        yield endpoint


class _Http(BoundedHttpServer):
    def __init__(self, address: tuple[str, int], endpoint: WatchEndpoint) -> None:
        self.endpoint = endpoint
        super().__init__(address, _Answer, MOST_AT_ONCE)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request for metrics broke", exc_info=True)


class _Answer(BaseHTTPRequestHandler):
    server: _Http
    timeout = REQUEST_S
    server_version, sys_version = "fedpace", ""

    def do_GET(self) -> None:
        endpoint, path = self.server.endpoint, self.path.partition("?")[0]
        if path == "/metrics":
            page = endpoint.metrics()
            self._send(HTTPStatus.OK, page, "text/plain; version=0.0.4; charset=utf-8")
        elif path == "/healthz":
            self._tell(*endpoint.health())
        elif path == "/readyz":
            self._tell(*endpoint.readiness())
        else:
            self._send(HTTPStatus.NOT_FOUND, b"/healthz, /readyz and /metrics are here\n", "text/plain")

    do_HEAD = do_GET

    def _tell(self, good: bool, found: dict[str, Any]) -> None:
        status = HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE
        self._send(status, json.dumps({"ok": good, **found}).encode() + b"\n", "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""
