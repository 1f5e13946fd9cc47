"""Agenda of a simulated run: entries in order of time, then kind, then the order of writing.

Equal times are common, since schedules fill their time exactly. Arrivals come before timers, or a
round would end before the updates that it waited for.
"""

import heapq
from enum import IntEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Kind(IntEnum):
    """Order of entries among equal times."""

    CLIENT = 0
    TIMER = 1
    TICK = 2


class Agenda(Generic[T]):
    """A heap of entries. Entries that no longer count are left in; their reader skips them."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Kind, int, T]] = []
        self._written = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, at: float, kind: Kind, entry: T) -> None:
        self._written += 1
        heapq.heappush(self._heap, (at, kind, self._written, entry))

    def pop(self) -> tuple[float, T] | None:
        """The next entry and its time; None: there is none."""
        if not self._heap:
            return None
        at, _, _, entry = heapq.heappop(self._heap)
        return at, entry
