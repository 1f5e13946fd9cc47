"""Processes of a run: how many, that none outlives it, and how they spend their time."""

import gc
import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def end_with_parent() -> None:
    """End this process when its parent is gone, however it went. Called once in a child."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def few_collections() -> Iterator[None]:
    """Look for garbage in circles a hundred times less often than Python does by itself.

    Virtual time makes none, but many small objects that live for a while: looking took a sixth of a
    timing-only run.
    """
    before = gc.get_threshold()
    gc.set_threshold(100_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
