"""Classes that belong to slow devices: a division whose classes follow the speeds of its clients."""

import numpy as np
import numpy.typing as npt

from fedpace.core.random import keyed as seeds
from fedpace.data.dataset import Labels
from fedpace.data.shares import Shares


def sort_by_speed(
    shares: Shares, labels: Labels, sample_s: npt.NDArray[np.float64], correlation: float, seed: int
) -> Shares:
    """The division with a part `correlation` of its samples handed out anew, classes by speed.

    The samples that take part are drawn one by one, and what takes part with a correlation also does
    with a larger one. They are put in the order of their classes, those of one class at random, and go
    into the places that they left, which are in the order of their clients' speeds: class 0 to the
    fastest, the last class to the slowest. Every client keeps its number of samples. With 0 nothing
    moves; with 1 nothing but the sizes is left of the division.
    """
    draws = seeds.generator(seed, "partition.speed").random((2, len(shares.places)))
    moved = np.flatnonzero(draws[0] < correlation)
    if not len(moved):
        return shares
    owners = shares.clients
    rank = np.empty(len(shares), dtype=np.int64)
    rank[np.argsort(sample_s, kind="stable")] = np.arange(len(shares))  # the fastest first
    slots = moved[np.argsort(rank[owners[moved]], kind="stable")]
    pool = shares.places[moved]
    places = shares.places.copy()
    places[slots] = pool[np.lexsort((draws[1][moved], labels[pool]))]
    order = np.lexsort((places, owners))
    return Shares(places[order], shares.starts)
