"""The inbox of a run: reports of clients, with the time at which they came, in that order."""

import threading
from collections import Counter, deque
from collections.abc import Callable

from fedpace.core.errors import FedpaceError, PeerError
from fedpace.core.events import Arrived, Failed, Profiled
from fedpace.remote.reports import ClientReady, JoinRequest, Report, RunStopped

MOST_UNHEARD = 100
"""Reports of one client that may wait here; it has a task at a time, and a few reports on each."""
_LONG_S = 3600.0


class Inbox:
    """A queue of reports. Any thread puts, the run's thread takes. clock: stamps what comes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reports: deque[tuple[float, Report]] = deque()
        self._unheard: Counter[int] = Counter()
        """Client -> its reports that wait."""
        self._changed = threading.Condition()
        self._over: FedpaceError | None = None
        self.stopped: str | None = None
        """Why the run is to stop."""

    def __len__(self) -> int:
        return len(self._reports)

    def put(self, report: Report) -> None:
        """Add a report; PeerError where a client reports faster than it can be heard."""
        with self._changed:
            if self._over is not None:
                _decline(report, self._over)
                return
            if isinstance(report, Profiled | Arrived | Failed):
                if self._unheard[report.client] >= MOST_UNHEARD:
                    raise PeerError(f"{MOST_UNHEARD} reports wait to be heard; no more are taken")
                self._unheard[report.client] += 1
            self._reports.append((self._clock(), report))
            self._changed.notify()

    def close(self, why: FedpaceError) -> None:
        """Take nothing any more: who waits for an answer, or will ask, is told why."""
        with self._changed:
            self._over = self._over or why
            for _, report in self._reports:
                _decline(report, why)
            self._reports.clear()

    def stop(self, reason: str) -> None:
        """Let `take` raise RunStopped."""
        with self._changed:
            self.stopped = reason
            self._changed.notify()

    def take(self, in_time: Callable[[float], bool], wait_s: float) -> tuple[float, Report] | None:
        """The first report and its stamp, where that is in time.

        None: there is none, and `wait_s` are over or something has happened.
        """
        with self._changed:
            if self.stopped is not None:
                raise RunStopped(self.stopped)
            if self._reports and in_time(self._reports[0][0]):
                stamp, report = self._reports.popleft()
                if isinstance(report, Profiled | Arrived | Failed):
                    self._unheard[report.client] -= 1
                return stamp, report
            self._wait(wait_s)
            return None

    def sleep(self, seconds: float) -> None:
        """Wait, but not longer than until something happens."""
        with self._changed:
            if self.stopped is None:
                self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            self._changed.wait(min(seconds, _LONG_S))


def _decline(report: Report, why: FedpaceError) -> None:
    """Tell who waits for an answer that there will be none."""
    if isinstance(report, JoinRequest | ClientReady) and report.answer.set_running_or_notify_cancel():
        report.answer.set_exception(why)
