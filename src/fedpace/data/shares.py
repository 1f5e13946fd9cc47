"""Samples of each client, for any number of clients: all indices in one array."""

from collections.abc import Iterator, Sequence
from typing import Any, Self, overload

import numpy as np
import numpy.typing as npt

Share = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]


class Shares(Sequence[Share]):
    """The samples of client 0, 1, ...: as a list of arrays, in 8 bytes a sample and 8 a client.

    places: of samples, one client's after the other's; starts: where in `places` each client's begin,
    and last where they end. A client's share is a view of its part of `places`.
    """

    __slots__ = ("places", "starts")

    def __init__(self, places: Share, starts: Counts) -> None:
        self.places = places
        self.starts = starts

    @classmethod
    def from_arrays(cls, shares: Sequence[np.ndarray]) -> "Shares":
        """From one array of integers a client; what is a Shares already stays the same."""
        if isinstance(shares, Shares):
            return shares
        places = np.concatenate([*shares, np.zeros(0, np.int64)], dtype=np.int64, casting="unsafe")
        return cls.from_sizes(places, np.fromiter(map(len, shares), np.int64, len(shares)))

    @classmethod
    def from_sizes(cls, places: Share, sizes: Counts) -> Self:
        """The first sizes[0] places to client 0, the next sizes[1] to client 1, and so on."""
        starts = np.zeros(len(sizes) + 1, dtype=np.int64)
        np.cumsum(sizes, out=starts[1:])
        return cls(places, starts)

    @classmethod
    def from_owners(cls, owners: npt.NDArray[np.integer], clients: int) -> Self:
        """By the owner of sample 0, 1, ...: everybody's samples ascending."""
        places = np.argsort(owners, kind="stable").astype(np.int64, copy=False)
        return cls.from_sizes(places, np.bincount(owners, minlength=clients))

    @classmethod
    def one_each(cls, owners: npt.NDArray[Any]) -> Self:
        """One client for everybody who owns a sample, in the order of the owners' numbers or names."""
        present, places = np.unique(owners, return_inverse=True)
        return cls.from_owners(places, len(present))

    @classmethod
    def for_same(cls, owners: npt.NDArray[Any], others: npt.NDArray[Any]) -> Self | None:
        """Samples of another set, owned by `others`, for the clients of `one_each(owners)`.

        None where one of these clients has none there.
        """
        present = np.unique(owners)
        places = np.flatnonzero(np.isin(others, present))
        made = cls.from_owners(np.searchsorted(present, others[places]), len(present))
        return cls(places[made.places], made.starts) if made.sizes.all() else None

    def __len__(self) -> int:
        return len(self.starts) - 1

    @overload
    def __getitem__(self, client: int) -> Share: ...
    @overload
    def __getitem__(self, client: slice) -> Sequence[Share]: ...
    def __getitem__(self, client: int | slice) -> Share | Sequence[Share]:
        if isinstance(client, slice):
            return [self[one] for one in range(len(self))[client]]
        client = range(len(self))[client]
        return self.places[self.starts[client] : self.starts[client + 1]]

    def __iter__(self) -> Iterator[Share]:
        return (self[client] for client in range(len(self)))

    def __repr__(self) -> str:
        return f"<{len(self.places)} samples of {len(self)} clients>"

    @property
    def sizes(self) -> Counts:
        """Number of samples of each client."""
        return np.diff(self.starts)

    @property
    def clients(self) -> Counts:
        """The owner of each entry of `places`."""
        return np.repeat(np.arange(len(self)), self.sizes)
