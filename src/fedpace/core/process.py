"""Processes that a run starts: how many, and that none outlives it."""

import multiprocessing
import os
import threading


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
