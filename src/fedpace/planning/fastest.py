"""The k fastest clients among those that have answered so far."""

import heapq

from fedpace.core.errors import ConfigError
from fedpace.planning.checks import check_whole


class FastestClients:
    """The k smallest total times so far, and the longest upload among them.

    Of equal times those of the higher clients come first.
    """

    def __init__(self, k: int) -> None:
        check_whole("k", k)
        self._k = k
        self._members: set[int] = set()
        self._by_total: list[tuple[float, int, float]] = []
        """A heap of (-total, client, upload): of members, and of some who were."""
        self._by_upload: list[tuple[float, int]] = []
        self._others: list[tuple[float, int, float]] = []
        """A heap of (total, -client, upload), the next of whom comes in where a member is removed."""
        self._removed: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, client: int) -> bool:
        return client in self._members

    def add(self, client: int, total_s: float, upload_s: float) -> None:
        self._enter(client, total_s, upload_s)
        if len(self._members) > self._k:
            self._forget_former()
            negative_s, slowest, upload_s = heapq.heappop(self._by_total)
            self._members.remove(slowest)
            heapq.heappush(self._others, (-negative_s, -slowest, upload_s))

    def remove(self, client: int) -> None:
        """Count a client no more, a member or not."""
        self._removed.add(client)
        if client in self._members:
            self._members.remove(client)
            while self._others:
                total_s, negative, upload_s = heapq.heappop(self._others)
                if -negative not in self._removed:
                    self._enter(-negative, total_s, upload_s)
                    break

    @property
    def slowest_s(self) -> float:
        """Total time of the slowest member."""
        self._check_not_empty()
        self._forget_former()
        return -self._by_total[0][0]

    @property
    def spare_s(self) -> float:
        """Seconds until the first member has to begin its upload, to be there with the slowest."""
        return self.slowest_s - self.longest_upload_s

    @property
    def longest_upload_s(self) -> float:
        """Longest upload among the members."""
        self._check_not_empty()
        while self._by_upload[0][1] not in self._members:
            heapq.heappop(self._by_upload)
        return -self._by_upload[0][0]

    def _check_not_empty(self) -> None:
        if not self._members:
            raise ConfigError("no client has answered yet; add one or more before asking for times")

    def _enter(self, client: int, total_s: float, upload_s: float) -> None:
        self._members.add(client)
        heapq.heappush(self._by_total, (-total_s, client, upload_s))
        heapq.heappush(self._by_upload, (-upload_s, client))

    def _forget_former(self) -> None:
        """See to it that the first by total is a member."""
        while self._by_total[0][1] not in self._members:
            heapq.heappop(self._by_total)
