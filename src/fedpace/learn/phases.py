"""Seconds of a run's start by phase, from its command to the end of its first round; without torch."""

import gc
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedpace.core.host import write_whole

TIMINGS = "timings.json"
"""File of a run's folder with the seconds of its start."""


class PhaseClock:
    """A clock that gives every second of a start to one phase, until it is stopped.

    A phase within another one takes its seconds from it, so that they add up to the whole; what is in
    none is "other". age_s: seconds that have passed already, which belong to the phase `first`.
    """

    def __init__(self, age_s: float = 0.0, first: str = "imports") -> None:
        self.seconds: dict[str, float] = {first: age_s} if age_s else {}
        self._within = ["other"]
        self._since: float | None = time.perf_counter()

    @classmethod
    def of_process(cls) -> "PhaseClock":
        """A clock that has run since this process began, which was all imports until now."""
        return cls(process_age_s())

    @property
    def running(self) -> bool:
        """Say whether the clock has not been stopped."""
        return self._since is not None

    @property
    def total_s(self) -> float:
        """Seconds of all phases so far."""
        self._count()
        return sum(self.seconds.values())

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """While entered, seconds belong to the phase of that name."""
        self._count()
        self._within.append(name)
        try:
            yield
        finally:
            self._count()
            self._within.pop()

    def stop(self) -> None:
        """End the start; what follows is not counted."""
        self._count()
        self._since = None

    def describe(self) -> str:
        """The phases in a line, the longest first."""
        if self.running:
            return "no timings of a start: no first round was trained here"
        longest = sorted(self.seconds.items(), key=lambda one: -one[1])
        parts = ", ".join(f"{name} {spent:.2f}" for name, spent in longest if spent >= 0.005)
        return f"the first round was over {self.total_s:.2f} s after the command: {parts}"

    def write(self, path: Path, about: Mapping[str, Any]) -> None:
        """Write the phases as JSON, with what is to be said about the run."""
        phases = {name: round(spent, 4) for name, spent in self.seconds.items()}
        content = {**about, "first_round_s": round(self.total_s, 4), "phases_s": phases}
        write_whole(path, json.dumps(content, indent=1) + "\n", 0o600)

    def _count(self) -> None:
        if self._since is not None:
            now, name = time.perf_counter(), self._within[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
            self._since = now


def process_age_s() -> float:
    """Seconds since this process began; 0 where the system does not tell it as Linux does."""
    try:
        # What follows the name, which may hold anything, in brackets: the state is field 3.
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        began_s = int(fields[22 - 3]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - began_s)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


@contextmanager
def importing(clock: PhaseClock) -> Iterator[None]:
    """While entered, seconds are those of imports, and nobody looks for garbage.

    Modules live on, and looking through all of torch's again and again takes a tenth of its import.
    """
    usual = gc.isenabled()
    gc.disable()
    try:
        with clock.phase("imports"):
            yield
    finally:
        if usual:
            gc.enable()
