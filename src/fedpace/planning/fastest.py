"""The fastest of those who have answered so far."""

import heapq


class Fastest:
    """The k smallest total times so far, and the longest upload among them."""

    def __init__(self, k: int) -> None:
        self._k = k
        self._by_total: list[tuple[float, int]] = []
        self._by_upload: list[tuple[float, int]] = []
        self._members: set[int] = set()

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, client: int) -> bool:
        return client in self._members

    def add(self, client: int, total_s: float, upload_s: float) -> None:
        heapq.heappush(self._by_total, (-total_s, client))
        heapq.heappush(self._by_upload, (-upload_s, client))
        self._members.add(client)
        if len(self._by_total) > self._k:
            self._members.remove(heapq.heappop(self._by_total)[1])
        while self._by_upload[0][1] not in self._members:
            heapq.heappop(self._by_upload)

    @property
    def slowest_s(self) -> float:
        return -self._by_total[0][0]

    @property
    def longest_upload_s(self) -> float:
        return -self._by_upload[0][0]
