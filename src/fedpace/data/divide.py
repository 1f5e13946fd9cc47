"""Samples divided among clients by given proportions of every class."""

import heapq

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError
from fedpace.data.dataset import Labels
from fedpace.data.shares import Counts, Shares

Floats = npt.NDArray[np.float64]


def divide_by_proportions(
    labels: Labels, proportions: Floats, rng: np.random.Generator, min_samples: int
) -> Shares:
    """Shares with these proportions of every class, all samples given and none twice.

    proportions: (classes, clients), the classes ascending, each row of sum 1. Clients below
    `min_samples` are topped up.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    clients = proportions.shape[1]
    counts = np.empty((len(classes), clients), dtype=np.int64)
    for row, part, size in zip(counts, proportions, sizes, strict=True):
        cuts = np.rint(np.cumsum(part)[:-1] * size).astype(np.int64)
        row[:] = np.diff(cuts, prepend=0, append=size)
    _top_up(counts, proportions, sizes, min_samples)

    owners = np.empty(len(labels), dtype=np.int64)
    for row, label in zip(counts, classes, strict=True):
        owners[rng.permutation(np.flatnonzero(labels == label))] = np.repeat(np.arange(clients), row)
    return Shares.from_owners(owners, clients)


def check_feasible(samples: int, clients: int, min_samples: int) -> None:
    """ConfigError unless there are `min_samples` for every client."""
    if clients < 1 or min_samples < 1:
        raise ConfigError(
            f"clients is {clients} and min_samples is {min_samples}; both must be 1 or more"
        )
    if clients > samples:
        raise ConfigError(
            f"clients is {clients}, but there are {samples} samples; set clients to {samples} at most"
        )
    if clients * min_samples > samples:
        raise ConfigError(
            f"min_samples is {min_samples}, but {samples} samples are too few for {clients} clients; "
            f"set min_samples to {samples // clients} at most"
        )


def _top_up(counts: Counts, proportions: Floats, sizes: Counts, min_samples: int) -> None:
    """Change counts (classes, clients) so that every client has `min_samples`; class totals stay.

    One sample at a time: the class in which the client is furthest behind its drawn mix, from the
    largest client that has it and can spare one. The draw before rounding tells the mix of a client
    that got nothing. A class that the draw kept from the client (a proportion of 0) is given only
    where nobody can spare one of its own. Ends always: while one client is below the minimum another
    is above it, since there are min_samples * clients samples or more.
    """
    size = counts.sum(axis=0)
    short = np.flatnonzero(size < min_samples)
    if not len(short):
        return
    donors, whole = _Donors(counts, size, min_samples), (sizes / sizes.sum()).tolist()
    for client in short.tolist():
        expected = proportions[:, client] * sizes
        drawn = expected.sum()
        mix = (expected / drawn).tolist() if drawn > 0 else whole
        own = counts[:, client].tolist()
        for _ in range(min_samples - int(size[client])):
            offered = [label for label in range(len(own)) if donors.largest(label) is not None]
            fitting = [label for label in offered if mix[label] > 0]
            label = max(fitting or offered, key=lambda one: mix[one] * min_samples - own[one])
            donors.take(label)
            own[label] += 1
        counts[:, client], size[client] = own, min_samples


class _Donors:
    """Clients above the minimum, by class and then by size; for any number of them.

    Nobody becomes larger or gets a new class, so that what was known of a client is as good as it can
    be: who comes first in a class by what was known is looked at, and put back where it belongs now.
    """

    def __init__(self, counts: Counts, size: Counts, least: int) -> None:
        """counts (classes, clients) and size change with what is taken."""
        self._counts, self._size, self._least = counts, size, least
        self._first = size.copy()
        by_size = np.argsort(-size, kind="stable")
        by_size = by_size[size[by_size] > least]
        self._waiting = [by_size[row[by_size] > 0] for row in counts]
        """For each class the clients not looked at yet, the largest first."""
        self._next = [0] * len(counts)
        self._known: list[list[tuple[int, int]]] = [[] for _ in counts]
        """For each class a heap of (-size, client) as last looked at."""

    def largest(self, label: int) -> int | None:
        """The largest client that can spare one of the class, the first of several; None: nobody."""
        heap = self._known[label]
        while self._look(label):
            negative, client = heap[0]
            size = int(self._size[client])
            if size <= self._least or not self._counts[label, client]:
                heapq.heappop(heap)
            elif size != -negative:
                heapq.heapreplace(heap, (-size, client))
            else:
                return client
        return None

    def take(self, label: int) -> None:
        """One sample of the class from the largest that can spare one."""
        client = self.largest(label)
        self._counts[label, client] -= 1
        self._size[client] -= 1

    def _look(self, label: int) -> bool:
        """See to it that whoever may be first is in the heap; False: nobody is left."""
        heap, waiting, place = self._known[label], self._waiting[label], self._next[label]
        while place < len(waiting):
            client = int(waiting[place])
            entry = -int(self._first[client]), client  # in whose order they wait
            if heap and entry > heap[0]:
                break
            heapq.heappush(heap, entry)
            place += 1
        self._next[label] = place
        return bool(heap)
