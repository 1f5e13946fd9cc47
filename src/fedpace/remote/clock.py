"""The seconds of a real run: they begin with it, never run backwards, and may stand."""

import logging
from collections.abc import Callable, Iterable

log = logging.getLogger("fedpace.server")

_LEAST_S = 0.001


class RunClock:
    """clock: seconds that never run backwards; hold_s: how long time stands for who is to come back."""

    def __init__(self, clock: Callable[[], float], hold_s: float) -> None:
        self.clock, self._hold_s = clock, hold_s
        self.started = False
        self._zero = 0.0
        self._last = 0.0
        self._awaited: set[int] = set()
        """Clients that time stands still for, since the server is back."""
        self._until = 0.0

    @property
    def run(self) -> bool:
        """Whether time goes on."""
        return self.started and not self._awaited

    def now(self) -> float:
        if self._awaited:
            return self._last
        return self.clock() - self._zero if self.started else 0.0

    def begin(self) -> None:
        """The run begins now."""
        self._zero, self.started = self.clock(), True

    def at(self, stamp: float) -> float:
        """The time of an event that was stamped by the clock; never before the last one."""
        if not self._awaited:
            self._last = max(self._last, stamp - self._zero) if self.started else 0.0
        return self._last

    def is_by(self, stamp: float, moment: float) -> bool:
        """Whether what was stamped came by a moment of the run."""
        return stamp - self._zero <= moment

    def retrace(self, at: float) -> None:
        """An event of a journal was then."""
        self._last = max(self._last, at)

    def go_on(self, at: float, awaited: Iterable[int]) -> None:
        """Go on at a moment of an earlier process, once these clients are back, or after a while."""
        self._zero, self._last = self.clock() - at, at
        if self.started:
            self._awaited = set(awaited)
            self._until = self.clock() + self._hold_s

    def is_back(self, *clients: int) -> None:
        """Time goes on where it stood when the last that it waited for is back or given up."""
        if self._awaited:
            self._awaited.difference_update(clients)
            if not self._awaited:
                self._zero = self.clock() - self._last

    def left_s(self) -> float:
        """Seconds for which time still stands, above 0; 0 where it does not, or no longer."""
        if self._awaited and self.clock() >= self._until:
            log.warning("%d clients are not back yet; time goes on without them", len(self._awaited))
            self.is_back(*self._awaited)
        return max(self._until - self.clock(), _LEAST_S) if self._awaited else 0.0
