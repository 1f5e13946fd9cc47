"""Memory that a training process has freed and is about to need again."""

import ctypes
import platform
from functools import cache

KEPT_BYTES = 1 << 28
"""A quarter of a GiB: more than a step of the models here frees."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # what mallopt sets, by its numbers in malloc.h
_OLDER_MOST = 1 << 25  # above which a glibc before 2.35 refuses the second


@cache
def keep_freed_memory() -> None:
    """Let this process keep up to KEPT_BYTES of freed memory, from now on.

    glibc gives memory back to the system as soon as two of the largest blocks seen are free, and a step
    frees all its gradients and images: the next one has to ask for every page again, which is then
    filled with zeros. The gradient of a few million weights takes twice as long by that. Peaks stay as
    they are. Other C libraries have their own ways and are left alone.
    """
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        # First, because setting the other one ends glibc's own way of finding this.
        if not libc.mallopt(_MMAP_THRESHOLD, KEPT_BYTES):
            libc.mallopt(_MMAP_THRESHOLD, _OLDER_MOST)
        libc.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
