"""A clock that stands still while its process does: stopped by a signal, or with its machine."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Self

MOST_S = 2.0
"""A process that gave no sign of life for longer than this has stood still."""
_EVERY_S = 0.25


class PauseClock:
    """Monotonic seconds in which this process ran; used as a context, which keeps it awake.

    Whoever looks at it gives a sign of life, and a thread does so four times a second. A longer gap
    between two signs is a pause, found by whoever looks first after it, and counts for nothing: no
    deadline comes nearer by it, and nobody was silent. clock: what it is made of.
    """

    def __init__(
        self, log: logging.Logger, clock: Callable[[], float] = time.monotonic, most_s: float = MOST_S
    ) -> None:
        self._log, self._clock, self._most_s = log, clock, most_s
        self._lock = threading.Lock()
        self._alive_at = clock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._stay_awake, daemon=True, name="fedpace-clock")
        self.paused_s = 0.0
        """Seconds of all pauses together."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def __call__(self) -> float:
        with self._lock:
            now = self._clock()
            gap_s, self._alive_at = now - self._alive_at, now
            if gap_s > self._most_s:
                self.paused_s += gap_s
            seen = now - self.paused_s
        if gap_s > self._most_s:
            self._log.warning("this process stood still for %.1f s, which count for nothing", gap_s)
        return seen

    def _stay_awake(self) -> None:
        while not self._over.wait(_EVERY_S):
            self()
