"""Stopping runs so that nothing is lost: by Ctrl-C, by SIGTERM, or by an event that somebody sets.

The first signal is only noted: the run saves a snapshot at the next moment when nothing is due, and
ends. The second one ends the process at once; then what a crash loses is lost.
"""

import os
import signal
import threading
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Any, Protocol, Self

from fedpace.core.run import Standing
from fedpace.remote.reports import RunStopped

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STOPPING = b"\nfedpace: stopping as soon as the state is saved; once more to end at once\n"
_SHOW_CURSOR = b"\x1b[?25h"
_ASK_EVERY_S = 0.1


class StopFlag(Protocol):
    """Says if a run is to stop; an Event of threading or of multiprocessing is one."""

    def is_set(self) -> bool: ...


class StoppedBySignal(KeyboardInterrupt):
    """Ctrl-C or SIGTERM has stopped a run or a comparison, to be gone on with."""

    def __init__(self, number: int, where: str) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name} {where}")
        self.number = number


class StopSignals:
    """While it is entered: notes Ctrl-C and SIGTERM, see above. number: of the signal that came.

    Signals reach the main thread alone; there, too, handlers that somebody else has set stay.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if handler in (signal.SIG_DFL, signal.default_int_handler):
                    self._before[number] = handler
                    signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def _hear(self, number: int, _: FrameType | None) -> None:
        # Not by a stream or a log, which the signal may have come in the middle of.
        if self.number is not None:
            end_at_once(number)
        self.number = number
        os.write(2, _STOPPING)


def end_at_once(number: int) -> None:
    """End this process as the signal would have; its child processes notice, and end too."""
    if os.isatty(2):
        os.write(2, _SHOW_CURSOR)  # progress bars have hidden it
    os._exit(128 + number)


class StopWatch:
    """A watch that saves and ends a run that is asked to stop, at a moment when nothing is due."""

    def __init__(self, signals: StopSignals, flag: StopFlag | None, save: Callable[[], None]) -> None:
        self._signals, self._flag, self._save = signals, flag, save
        self._asked_at = monotonic()

    def __call__(self, standing: Standing) -> None:
        if not standing.settled or standing.over or not self._is_asked():
            return
        self._save()
        where = f"at round {standing.round}"
        if self._signals.number is not None:
            raise StoppedBySignal(self._signals.number, where)
        raise RunStopped(f"stopped {where}")

    def _is_asked(self) -> bool:
        if self._signals.number is not None:
            return True
        if self._flag is None or monotonic() - self._asked_at < _ASK_EVERY_S:
            return False
        self._asked_at = monotonic()
        return self._flag.is_set()
