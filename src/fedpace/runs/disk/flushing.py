"""Lines of a simulated run's journal, brought to its file in time for those who read along."""

import time
from collections.abc import Callable

from fedpace.core.journal import Journal
from fedpace.core.run import Standing

EVERY_S = 1.0


class JournalFlusher:
    """A watch that hands lines which wait in memory to the system, about once a real second.

    Without it they wait for 255 more: of a run that trains, minutes.
    """

    def __init__(self, journal: Journal, clock: Callable[[], float] = time.monotonic) -> None:
        self._journal, self._clock, self._next = journal, clock, clock() + EVERY_S

    def __call__(self, standing: Standing) -> None:
        now = self._clock()
        if now >= self._next:
            self._next = now + EVERY_S
            self._journal.flush()
