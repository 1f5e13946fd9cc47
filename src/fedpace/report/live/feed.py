"""The newest state of followed runs, for any number of readers.

One thread reads journals and makes documents; readers get the newest there is. Nothing queues up: what
a slow reader has missed is gone.
"""

import gzip
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from fedpace.report.live.runs import FollowedRuns, RunsState

log = logging.getLogger("fedpace.live")

POLL_S = 0.5
"""How often journals are looked at."""
BUILD_EVERY_S, BUILD_SHARE = 1.0, 0.2
"""Least time between two documents, and the share of a core that making them may take."""
Document = Callable[[FollowedRuns], Any]
"""Makes what a page shows of runs, as JSON has it."""


@dataclass(frozen=True, slots=True)
class FeedState:
    """What is newest. version: of the document, 0 before the first; closed: nothing more will come.

    fault: why the last document could not be made, empty where it could.
    """

    runs: RunsState
    version: int
    closed: bool
    fault: str = ""

    def to_json(self) -> str:
        own = {"version": self.version, "closed": self.closed, "fault": self.fault}
        return json.dumps(asdict(self.runs) | own)


class LiveFeed:
    """Follows runs in a thread of its own, from `start` to `close`."""

    def __init__(self, runs: FollowedRuns, document: Document) -> None:
        self._runs, self._make = runs, document
        self._news = threading.Condition()
        self._state = FeedState(runs.state(), 0, closed=False)
        self._body, self._fault = b"", ""
        self._readers = 0
        self._stale, self._built_at, self._took_s = True, 0.0, 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="fedpace-live", daemon=True)
        self.left_at = time.monotonic()
        """When the last reader has gone."""

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End; readers are told."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()
        self._publish(closed=True)

    @property
    def state(self) -> FeedState:
        return self._state

    @property
    def readers(self) -> int:
        """Readers that wait for news now."""
        return self._readers

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Documents are made while somebody reads."""
        with self._news:
            self._readers += 1
        try:
            yield
        finally:
            with self._news:
                self._readers -= 1
                self.left_at = time.monotonic()

    def wait(self, known: FeedState | None, timeout_s: float) -> FeedState:
        """The newest state, as soon as it is another than the known one, or the time is over."""
        with self._news:
            self._news.wait_for(lambda: self._state != known, timeout_s)
            return self._state

    def document(self, timeout_s: float = 30.0) -> bytes:
        """The newest document, JSON in gzip; empty where none could be made in time."""
        with self.reading(), self._news:
            self._news.wait_for(lambda: self._state.version or self._state.closed, timeout_s)
            return self._body

    def _follow(self) -> None:
        while not self._ending.is_set():
            moved = self._runs.advance()
            self._stale = self._stale or moved
            self._publish()
            now = time.monotonic()
            pause_s = max(BUILD_EVERY_S, self._took_s / BUILD_SHARE)
            final = self._state.runs.over
            due = final or now - self._built_at >= pause_s or not self._state.version
            if self._stale and self._readers and due and self._state.runs.runs:
                self._build()
            if not moved:
                self._ending.wait(POLL_S)

    def _build(self) -> None:
        began = time.monotonic()
        self._stale, body = False, None
        try:
            text = json.dumps(self._make(self._runs), allow_nan=False, separators=(",", ":"))
            body, self._fault = gzip.compress(text.encode(), 1, mtime=0), ""
        except Exception as error:  # of runs that are unlike, or of a bug: the next may do
            self._fault = f"the page cannot be made: {error}"
            log.debug("the page cannot be made", exc_info=True)
        self._built_at = time.monotonic()
        self._took_s = self._built_at - began
        if body is not None:
            with self._news:
                self._body = body
        self._publish(built=body is not None)

    def _publish(self, built: bool = False, closed: bool = False) -> None:
        version, closed = self._state.version + built, closed or self._state.closed
        state = FeedState(self._runs.state(), version, closed, self._fault)
        with self._news:
            if state != self._state:
                self._state = state
                self._news.notify_all()
