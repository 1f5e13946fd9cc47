"""Partitions of a dataset: every sample goes to one client, and every client gets some.

A share is a sorted int64 array of sample indices; entry i of the shares belongs to client i.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedpace.core.errors import Checked, ConfigError, Count, between
from fedpace.core.random import keyed as seeds
from fedpace.data.dataset import Labels
from fedpace.data.divide import check_feasible
from fedpace.data.shares import Share, Shares
from fedpace.data.skews import Concentration, by_class, check_classes, dirichlet, dual_dirichlet


@dataclass(frozen=True, slots=True)
class PartitionSettings(Checked):
    """Partition of the training set among clients."""

    kind: Annotated[
        Literal["iid", "dirichlet", "class", "dual-dirichlet"],
        "iid: equal random shares; dirichlet: skewed labels and sizes; class: a few classes a client; "
        "dual-dirichlet: sizes and classes drawn apart",
    ] = "dirichlet"
    alpha: Annotated[
        Concentration | None,
        "dirichlet, dual-dirichlet: concentration of the draw of classes; smaller is more skewed; "
        "unset: 0.1, dual-dirichlet 0.5",
    ] = None
    min_samples: Annotated[Count, "fewest samples a client gets"] = 10
    min_classes: Annotated[
        Count | None, "class: fewest classes a client gets; unset: 5, from 10 clients on 3"
    ] = None
    max_classes: Annotated[
        Count | None, "class: most classes a client gets; unset: 6, from 10 clients on 5"
    ] = None
    size_alpha: Annotated[
        Concentration | None,
        "dual-dirichlet: concentration of the draw of sizes; unset: the number of clients",
    ] = None
    speed_correlation: Annotated[
        float,
        between(0, 1),
        "how far classes belong to slow devices: a part of the samples so large is handed out anew, "
        "the first classes to the fastest, the last to the slowest; sizes stay",
    ] = 0.0

    def _check_rest(self) -> None:
        if self.min_classes is not None and self.max_classes is not None:
            check_classes(self.min_classes, self.max_classes)


def partition(labels: Labels, clients: int, settings: PartitionSettings, seed: int) -> Shares:
    """The shares that `settings` ask for; the same for the same seed."""
    rng = seeds.generator(seed, "partition")
    least, alpha = settings.min_samples, settings.alpha
    match settings.kind:
        case "iid":
            return iid(labels, clients, rng, least)
        case "dirichlet":
            return dirichlet(labels, clients, 0.1 if alpha is None else alpha, rng, least)
        case "class":
            bounds = settings.min_classes, settings.max_classes
            return by_class(labels, clients, *bounds, rng, least)
        case "dual-dirichlet":
            alpha = 0.5 if alpha is None else alpha
            return dual_dirichlet(labels, clients, settings.size_alpha, alpha, rng, least)


def iid(labels: Labels, clients: int, rng: np.random.Generator, min_samples: int = 1) -> Shares:
    """Random shares whose sizes differ by one at most."""
    check_feasible(len(labels), clients, min_samples)
    sizes = np.full(clients, len(labels) // clients)
    sizes[: len(labels) % clients] += 1
    owners = np.empty(len(labels), dtype=np.int64)
    owners[rng.permutation(len(labels))] = np.repeat(np.arange(clients), sizes)
    return Shares.from_owners(owners, clients)


def check_partition(shares: Sequence[Share], total: int) -> None:
    """ConfigError unless each client has samples, all in 0..total-1 and none given twice."""
    division = Shares.from_arrays(shares)
    places, given = division.places, np.zeros(total, dtype=np.bool_)
    within = not len(places) or (places.min() >= 0 and places.max() < total)
    if within:
        given[places] = True
    if not (within and (division.sizes > 0).all() and np.count_nonzero(given) == len(places)):
        _find_fault(division, total)


def _find_fault(shares: Sequence[Share], total: int) -> None:
    """ConfigError for the first client whose share cannot be."""
    owner = np.full(total, -1, dtype=np.int64)
    for client, share in enumerate(shares):
        if len(share) == 0:
            raise ConfigError(f"client {client} has no samples; give every client at least one")
        outside = share[(share < 0) | (share >= total)]
        if len(outside):
            raise ConfigError(
                f"client {client} has sample {outside[0]}, but there are {total} samples; "
                f"indices must lie between 0 and {total - 1}"
            )
        values, times = np.unique(share, return_counts=True)
        if (times > 1).any():
            raise ConfigError(
                f"client {client} has sample {values[times > 1][0]} more than once; give it once"
            )
        taken = share[owner[share] >= 0]
        if len(taken):
            raise ConfigError(
                f"sample {taken[0]} is given to client {owner[taken[0]]} and to client {client}; "
                "give each sample to one client"
            )
        owner[share] = client
