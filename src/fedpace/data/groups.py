"""Samples that belong to somebody, such as a speaker, given to clients without dividing them."""

import heapq

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.data.dataset import Labels
from fedpace.data.shares import Shares


def share_by_owner(owners: Labels, clients: int, what: str) -> Shares:
    """Everybody's samples to one client; with fewer clients than owners, a client gets several.

    The owner with most samples comes first, and goes to the client with the fewest so far. With as many
    clients as owners, client i is the i-th owner. what: who owns, for the error.
    """
    sizes = np.bincount(owners)
    present = np.flatnonzero(sizes)
    if not 1 <= clients <= len(present):
        raise ConfigError(
            f"clients is {clients}, but there are {len(present)} {what}s with samples; set clients "
            f"between 1 and {len(present)}, or let the partition divide the samples"
        )
    client_of = np.zeros(len(sizes), np.int64)
    if clients == len(present):
        client_of[present] = np.arange(clients)
    else:
        loads = [(0, client) for client in range(clients)]
        for owner in present[np.argsort(-sizes[present], kind="stable")].tolist():
            load, client_of[owner] = loads[0]
            heapq.heapreplace(loads, (load + int(sizes[owner]), int(client_of[owner])))
    return Shares.from_owners(client_of[owners], clients)
