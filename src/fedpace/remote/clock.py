"""The clock of a real run."""

import logging
from collections.abc import Callable, Iterable

log = logging.getLogger("fedpace.server")

_LEAST_S = 0.001


class RunClock:
    """Pausable monotonic seconds since the run began.

    clock: seconds that never run backwards; hold_s: how long time may stand for clients to come back.
    """

    def __init__(self, clock: Callable[[], float], hold_s: float) -> None:
        self.clock, self._hold_s = clock, hold_s
        self.started = False
        self._zero = 0.0
        self._last = 0.0
        self._awaited: set[int] = set()
        """Clients that time stands still for, since the server is back."""
        self._until = 0.0

    @property
    def running(self) -> bool:
        """True while time goes on."""
        return self.started and not self._awaited

    def now(self) -> float:
        if self._awaited:
            return self._last
        return self.clock() - self._zero if self.started else 0.0

    def begin(self) -> None:
        """Begin the run: it is second 0 now."""
        self._zero, self.started = self.clock(), True

    def time_of(self, stamp: float) -> float:
        """The run's time of a stamp of the clock, for an event; never before the last one."""
        if not self._awaited:
            self._last = max(self._last, stamp - self._zero) if self.started else 0.0
        return self._last

    def came_by(self, stamp: float, at: float) -> bool:
        """True if a stamp of the clock is not later than a time of the run."""
        return stamp - self._zero <= at

    def resume(self, at: float, started: bool, awaited: Iterable[int]) -> None:
        """Resume at a time of an earlier process, once these clients are back, or after a while."""
        self._zero, self._last, self.started = self.clock() - at, at, started
        if started:
            self._awaited = set(awaited)
            self._until = self.clock() + self._hold_s

    def release(self, *clients: int) -> None:
        """Stop waiting for these clients; time goes on when it waits for none."""
        if self._awaited:
            self._awaited.difference_update(clients)
            if not self._awaited:
                self._zero = self.clock() - self._last

    def pause_left_s(self) -> float:
        """Seconds for which time still stands; 0 where it runs."""
        if self._awaited and self.clock() >= self._until:
            log.warning("%d clients are not back yet; time goes on without them", len(self._awaited))
            self.release(*self._awaited)
        return max(self._until - self.clock(), _LEAST_S) if self._awaited else 0.0
