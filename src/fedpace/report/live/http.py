"""HTTP for a live page: the page, its data, and events that say when there is more of it.

Standard library threads, bounded: so many requests at a time, so many of them streams, and a browser
that does not take what it is sent is cut off. Only GET; no files. A request must name the host that it
was sent to, so that no other site's name can be pointed at this machine to read it.
"""

import logging
import socket
import ssl
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fedpace.report.live.access import PageAccess, cookie_of
from fedpace.report.live.bounded import BoundedHttpServer, is_loopback
from fedpace.report.live.feed import LiveFeed

log = logging.getLogger("fedpace.live")

MOST_AT_ONCE, MOST_STREAMS = 24, 16
"""Requests at a time, and those of them that may be streams of events."""
REQUEST_S = 10.0
"""How long a request may take to come, and a piece of an answer to be taken."""
BEAT_S = 15.0
"""A stream in which nothing happens says so this often."""
_SAFE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}
EVERYWHERE = ("0.0.0.0", "::")
"""Hosts that stand for all addresses of a machine."""
TlsContext = Callable[[], ssl.SSLContext]


class LivePageServer(BoundedHttpServer):
    """Serves a live page at an address until `close`. OSError where it cannot listen there.

    page: the HTML; names: hosts that a request may name besides the one it listens on; tls: gives the
    context for a connection, None: it is plain. most, most_streams: requests at a time, and streams.
    """

    def __init__(
        self,
        address: tuple[str, int],
        feed: LiveFeed,
        page: bytes,
        access: PageAccess,
        names: tuple[str, ...] = (),
        tls: TlsContext | None = None,
        most: int = MOST_AT_ONCE,
        most_streams: int = MOST_STREAMS,
    ) -> None:
        self.feed, self.page, self.access, self._tls = feed, page, access, tls
        self.streams = threading.BoundedSemaphore(most_streams)
        super().__init__(address, _PageRequest, most)
        self.host, self.port = address[0], int(self.server_address[1])
        self._names = {self.host.lower(), *(name.lower() for name in names)}
        self._any_name = not is_loopback(self.host)
        self.secure = tls is not None
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)

    @property
    def cookie(self) -> str:
        """The name of the page's cookie; ports of one host share theirs."""
        return f"fedpace-{self.port}"

    @property
    def url(self) -> str:
        """Where a browser finds the page."""
        host = socket.gethostname() if self.host in EVERYWHERE else self.host
        return page_url(host, self.port, self.secure)

    def start(self) -> None:
        self.feed.start()
        self._thread.start()

    def close(self) -> None:
        """End all streams, and listen no more."""
        self.feed.close()
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def knows(self, host: str | None) -> bool:
        """Tell if a request's Host may be answered; the port may be another, of a tunnel."""
        if self._any_name:
            return True
        try:
            name = urlsplit(f"//{host or ''}").hostname or ""
        except ValueError:
            return False
        return name in self._names or is_loopback(name)

    def finish_request(self, request: Any, client_address: Any) -> None:
        request.settimeout(REQUEST_S)
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        secured = self._tls().wrap_socket(request, server_side=True)
        try:
            super().finish_request(secured, client_address)
        finally:
            self.shutdown_request(secured)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request for the page broke", exc_info=True)


def page_url(host: str, port: int, secure: bool) -> str:
    """The address of a page."""
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if secure else 'http'}://{name}:{port}/"


class _PageRequest(BaseHTTPRequestHandler):
    server: LivePageServer
    timeout = REQUEST_S
    server_version, sys_version = "fedpace", ""

    def do_GET(self) -> None:
        server, asked = self.server, urlsplit(self.path)
        if not server.knows(self.headers.get("Host")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this page is not at the host that was named")
            return
        (secret,) = parse_qs(asked.query).get("key", [""])[:1]
        if secret and asked.path == "/":
            self._enter(secret)
            return
        if not server.access.allows(cookie_of(self.headers.get("Cookie"), server.cookie)):
            self._refuse(HTTPStatus.FORBIDDEN, server.access.hint)
        elif asked.path == "/":
            self._send(server.page, "text/html; charset=utf-8")
        elif asked.path == "/data":
            self._send_data()
        elif asked.path == "/events":
            self._stream()
        elif asked.path == "/favicon.ico":
            self._begin(HTTPStatus.NO_CONTENT, {})
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "/, /data and /events are here")

    def _other(self) -> None:
        self._refuse(HTTPStatus.METHOD_NOT_ALLOWED, "only GET is answered")

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = _other

    def _enter(self, secret: str) -> None:
        """A cookie for a secret, and the page without it in its address."""
        cookie = self.server.access.enter(secret)
        if cookie is None:
            text = f"this link is wrong, used or too old; {self.server.access.hint}"
            self._refuse(HTTPStatus.FORBIDDEN, text)
            return
        headers = {"Location": "/"}
        if cookie:
            secure = "; Secure" if self.server.secure else ""
            kind = f"Path=/; HttpOnly; SameSite=Lax{secure}"
            headers["Set-Cookie"] = f"{self.server.cookie}={cookie}; {kind}"
        self._begin(HTTPStatus.SEE_OTHER, headers)

    def _send_data(self) -> None:
        body = self.server.feed.document()
        if body:
            self._send(body, "application/json", {"Content-Encoding": "gzip"})
        else:
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, self.server.feed.state.runs.text)

    def _stream(self) -> None:
        """Server-sent events: the newest state when there is another, until all is over."""
        server, known = self.server, None
        if not server.streams.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "too many look already")
            return
        try:
            self._begin(HTTPStatus.OK, {"Content-Type": "text/event-stream"})
            with server.feed.reading():
                while known is None or not known.closed:
                    before, known = known, server.feed.wait(known, BEAT_S)
                    if not server.access.allows(cookie_of(self.headers.get("Cookie"), server.cookie)):
                        return
                    line = ": still here" if known == before else f"data: {known.to_json()}"
                    self.wfile.write(f"{line}\n\n".encode())
        finally:
            server.streams.release()

    def _send(self, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        about = {"Content-Type": kind, "Content-Length": str(len(body))}
        self._begin(HTTPStatus.OK, about | (more or {}))
        self.wfile.write(body)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        body = f"{text}\n".encode()
        about = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(body))}
        self._begin(status, about)
        if self.command != "HEAD":
            self.wfile.write(body)

    def _begin(self, status: HTTPStatus, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in (_SAFE | headers).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""
