"""Tiers of clients with like speeds, for any number of clients: FedAT's, and who of them is free.

What is known of a client are numbers at its place in arrays, 24 bytes in all. A client whose speed
changes within the bounds of tiers changes its own tier only; all are sorted when a bound may have
moved.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Clients = npt.NDArray[np.int64]


class Tiers:
    """From the fastest client on, whoever needs up to `ratio` times what a tier's fastest does is in.

    Tiers are numbered from 1 for the fastest. retier: they are made of what is known by then; False:
    the first ones keep their bounds and their clients, and newcomers are sorted into them.
    """

    def __init__(self, ratio: float, retier: bool) -> None:
        self.count = 0
        """Tiers that were made; without re-tiering, up to the last that has anybody in it."""
        self.known = 0
        """Clients whose speed is known."""
        self._ratio, self._retier = ratio, retier
        self._task_s = array("d")
        """What a task takes each client; nan: not known."""
        self._tier = array("q")
        """Of each client, 0: of those who are not known."""
        self._round = array("q")
        """Of each client the tier in whose round it is, 0: it is free."""
        self._starts: list[float] = []
        """What a task takes the fastest of each tier."""
        self._moved = True
        """Whether bounds may be others than when tiers were made."""
        self._members, self._free = [0], [0]
        """How many there are by tier, from 0 on."""
        self._left: dict[int, int] = {}
        """Client -> the tier that it had, of those who have left since tiers were made."""

    def put(self, client: int, task_s: float) -> None:
        """A task takes the client so long, as last measured."""
        self._grow(client + 1)
        before_s, self._task_s[client] = self._task_s[client], task_s
        if task_s == before_s:
            return
        new = math.isnan(before_s)
        self.known += new
        if self._retier:
            self._moved = self._moved or self._starts_one(before_s) or not self._is_within(task_s)
            self._move(client, 0 if self._moved else bisect_right(self._starts, task_s))
        elif new and self._starts:
            tier = self._left.pop(client, 0) or max(bisect_right(self._starts, task_s), 1)
            self._move(client, tier)

    def forget(self, client: int) -> None:
        """The speed of a client is not known any more."""
        if client < len(self._task_s) and not math.isnan(self._task_s[client]):
            self.known -= 1
            self._moved = self._moved or self._starts_one(self._task_s[client])
            self._left[client] = self._tier[client]
            self._task_s[client] = math.nan
            self._move(client, 0)

    def make(self) -> None:
        """Make tiers of all clients that are known."""
        if self._moved and (self._retier or not self._starts):
            self._sort()
        self._left.clear()
        tiers = range(len(self._members) - 1, 0, -1)
        self.count = next((tier for tier in tiers if self._members[tier]), 0)

    def has_free(self, tier: int) -> bool:
        return self._free[tier] > 0

    def free(self, tier: int) -> Clients:
        """Clients of a tier that are in no round, in order."""
        tiers, rounds = (np.frombuffer(one, dtype=np.int64) for one in (self._tier, self._round))
        return np.flatnonzero((tiers == tier) & (rounds == 0))

    def by_speed(self, clients: Iterable[int]) -> list[int]:
        """The fastest first."""
        return sorted(clients, key=lambda one: (self._task_s[one], one))

    def occupy(self, client: int, tier: int) -> None:
        """A client is in the round of a tier."""
        self._round[client] = tier
        self._free[self._tier[client]] -= 1

    def round_of(self, client: int) -> int:
        """The tier in whose round a client is; 0: in none."""
        return self._round[client] if client < len(self._round) else 0

    def release(self, client: int) -> None:
        """A client is in no round any more."""
        self._round[client] = 0
        self._free[self._tier[client]] += 1

    def _grow(self, clients: int) -> None:
        missing = clients - len(self._task_s)
        if missing > 0:
            self._task_s.extend([math.nan] * missing)
            self._tier.extend([0] * missing)
            self._round.extend([0] * missing)
            self._members[0] += missing
            self._free[0] += missing

    def _starts_one(self, task_s: float) -> bool:
        """True if a tier begins with a client that takes so long."""
        place = bisect_left(self._starts, task_s)
        return place < len(self._starts) and self._starts[place] == task_s

    def _is_within(self, task_s: float) -> bool:
        """True if a client that takes so long fits into the tiers that there are."""
        tier = bisect_right(self._starts, task_s)
        return tier > 0 and not task_s > self._ratio * self._starts[tier - 1]

    def _move(self, client: int, tier: int) -> None:
        before, self._tier[client] = self._tier[client], tier
        free = not self._round[client]
        self._members[before] -= 1
        self._members[tier] += 1
        self._free[before] -= free
        self._free[tier] += free

    def _sort(self) -> None:
        """Find where tiers begin, and put everybody into one."""
        task_s = np.frombuffer(self._task_s, dtype=np.float64)
        unknown = np.isnan(task_s)
        ascending, place = np.sort(task_s[~unknown]), 0
        self._starts = []
        while place < len(ascending):
            self._starts.append(float(ascending[place]))
            place = int(ascending.searchsorted(self._ratio * self._starts[-1], side="right"))
        tiers = np.searchsorted(self._starts, task_s, side="right")
        tiers[unknown] = 0
        self._tier = array("q", tiers.astype(np.int64).tobytes())
        count, rounds = len(self._starts) + 1, np.frombuffer(self._round, dtype=np.int64)
        self._members = np.bincount(tiers, minlength=count).tolist()
        self._free = np.bincount(tiers[rounds == 0], minlength=count).tolist()
        self._moved = False
