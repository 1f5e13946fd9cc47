"""Medians over many clients that are taken out one by one."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence


class Medians:
    """The median of every number that clients have, each as many; of no clients there is none."""

    def __init__(self, clients: Iterable[tuple[float, ...]]) -> None:
        self._sorted = [array("d", sorted(numbers)) for numbers in zip(*clients, strict=True)]

    @property
    def values(self) -> tuple[float, ...]:
        return tuple(_middle(one) for one in self._sorted if one)

    def take_out(self, client: tuple[float, ...]) -> None:
        """Count a client no more, by its numbers."""
        for one, number in zip(self._sorted, client, strict=True):
            del one[bisect_left(one, number)]


def _middle(ascending: Sequence[float]) -> float:
    half, odd = divmod(len(ascending), 2)
    return ascending[half] if odd else (ascending[half - 1] + ascending[half]) / 2
