"""A web server on this machine that can misbehave as real ones do."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Site:
    """What the server has, how it behaves, and what it was asked for.

    files: contents by path, or by whole URL where it serves as a proxy; ranges: False ignores them;
    breaks: lengths after which the next answers break off; sends_length: False leaves the end open;
    shift: how far off an answered range begins; asked: (path, Range header) of each request.
    """

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    ranges: bool = True
    breaks: list[int] = field(default_factory=list)
    sends_length: bool = True
    shift: int = 0
    asked: list[tuple[str, str | None]] = field(default_factory=list)


@contextmanager
def serving() -> Iterator[Site]:
    """A site for as long as the block lasts."""
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            wanted = self.headers["Range"]
            site.asked.append((self.path, wanted))
            content = site.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = 0
            if wanted and site.ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-")) + site.shift
                if start >= len(content):
                    self.send_error(416)
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            if site.sends_length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + site.breaks.pop(0) if site.breaks else len(content)
            self.wfile.write(content[start:end])

        def log_message(self, *_: object) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    site.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
