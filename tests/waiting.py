"""Waiting for what another process does, until it is there or takes too long."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LONG_S = 60.0
"""How long something is waited for that takes a moment, on a machine that has other things to do."""


def wait_for(
    what: Callable[[], T], why: str, logs: Callable[[], str] = lambda: "", within_s: float = LONG_S
) -> T:
    """Call `what` until it gives something, and return that; AssertionError where it takes too long."""
    end = time.monotonic() + within_s
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < end, f"waited {within_s:g} s in vain: {why}\n{logs()}"
        time.sleep(0.01)
