"""Memory that a training process has freed and is about to need again."""

import ctypes
import platform
from functools import cache

KEPT_BYTES = 1 << 28
"""A quarter of a GiB: more than a step of the models here frees."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # mallopt's names for them, from malloc.h


@cache
def keep_freed_memory() -> None:
    """Let this process keep up to KEPT_BYTES of freed memory, from now on.

    glibc gives memory back to the system as soon as two of the largest blocks seen are free, and a step
    frees all its gradients and images: the next one has to ask for every page again, which then is
    filled with zeros. Gradients of a few million numbers cost as much again by that. Peaks stay as they
    are. Other C libraries have their own ways and are left alone.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(_MMAP_THRESHOLD, KEPT_BYTES)
        libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
