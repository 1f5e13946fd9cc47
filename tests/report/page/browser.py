"""A headless Chromium, driven over the pipe of its DevTools protocol: no port, no library."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE_S = 60.0


def find_chromium() -> str | None:
    """The path of a Chromium, where there is one."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class BrowserError(Exception):
    """The browser refused a command, or a script in the page threw."""


class Browser:
    """One browser process with one page at a time. Used as a context; `faults` are console errors."""

    def __init__(self, program: str, profile: Path) -> None:
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()

        def place() -> None:
            # Chromium reads commands from descriptor 3 and writes answers to 4.
            first, second = os.dup(there_read), os.dup(there_write)
            os.dup2(first, 3)
            os.dup2(second, 4)

        options = (
            "--headless=new --no-sandbox --disable-gpu --hide-scrollbars --remote-debugging-pipe "
            "--no-first-run --disable-extensions --disable-dev-shm-usage --force-device-scale-factor=1"
        )
        self._process = subprocess.Popen(
            [program, *options.split(), f"--user-data-dir={profile}"],
            close_fds=False,
            preexec_fn=place,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(there_read)
        os.close(there_write)
        self._in, self._out, self._rest = here_write, here_read, b""
        self._numbers = itertools.count(1)
        self._session: str | None = None
        self._target: str | None = None
        self.shows: Path | str | None = None
        """The page that was opened last at the usual size."""
        self.faults: list[str] = []
        self.requests: list[str] = []

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._in)  # the browser ends with its pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._out)

    def open(
        self, path: Path | str, width: int = 1280, height: int = 900, dark: bool = False, view: str = ""
    ) -> None:
        """Open a file or a link in a fresh page, and wait until it shows its data. view: one of its."""
        if self._target is not None:
            self.call("Target.closeTarget", browser=True, targetId=self._target)
        self._target = self.call("Target.createTarget", browser=True, url="about:blank")["targetId"]
        found = self.call("Target.attachToTarget", browser=True, targetId=self._target, flatten=True)
        self._session = found["sessionId"]
        self.faults.clear()
        self.requests.clear()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height, dark)
        link = path if isinstance(path, str) else path.absolute().as_uri()
        self.call("Page.navigate", url=link + (f"#{view}" if view else ""))
        self.wait("document.body && document.body.dataset.shown >= '1'")
        self.shows = path if (width, height, dark, view) == (1280, 900, False, "") else None

    def resize(self, width: int, height: int = 900, dark: bool = False) -> None:
        """Give the page another size and look."""
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=phone,
        )  # fmt: skip
        look = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[look])

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise BrowserError(str(found["exceptionDetails"].get("exception", found)))
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        end = time.monotonic() + PATIENCE_S
        while not self.run(f"Boolean({condition})"):
            if time.monotonic() > end:
                raise BrowserError(f"{condition} did not come true; faults: {self.faults}")
            self.run("new Promise((done) => setTimeout(done, 20))")

    def click(self, x: float, y: float) -> None:
        """Press and release the mouse at a place of the window."""
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def drawn(self) -> None:
        """Wait until what was asked for is on the screen."""
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def picture(self, path: Path, whole: bool = False) -> None:
        """Save what is seen, or the whole page, as PNG."""
        self.drawn()
        image = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(image["data"]))

    def call(self, method: str, browser: bool = False, wait: bool = True, **params: Any) -> Any:
        """Send a command and give its result; events that come meanwhile are taken in."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if self._session is not None and not browser:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while wait:
            answer = self._next(end, method)
            if answer.get("id") == number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]
            self._hear(answer)
        return None

    def _next(self, end: float, method: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._out], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self._out, 1 << 20) if ready else b""
            if not data:
                raise BrowserError(f"no answer to {method}; the browser ended or hangs")
            self._rest += data
        first, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(first)
        return found

    def _hear(self, event: dict[str, Any]) -> None:
        method, params = event.get("method"), event.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.faults.append(str(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.faults.append(str(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.faults.append(str(params["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
