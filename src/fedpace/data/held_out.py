"""Samples that are held out of each client's own before training, to test the model for that client."""

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.core.random import keyed
from fedpace.data.shares import Shares


def hold_out(shares: Shares, share: float, seed: int) -> tuple[Shares, Shares]:
    """What each client keeps to train on, in its order, and what is held out, at least one sample."""
    small = np.flatnonzero(shares.sizes < 2)
    if len(small):
        client = int(small[0])
        others = f" ({len(small)} clients have so few)" if len(small) > 1 else ""
        raise ConfigError(
            f"client {client} has {int(shares.sizes[client])} samples{others}, but evaluate.clients "
            "needs two, one to train on and one to test on; use fewer clients or an even partition, "
            "give the task client_tests, or set evaluate.clients to false"
        )
    held = np.zeros(len(shares.places), dtype=bool)
    for client, (start, size) in enumerate(zip(shares.starts, shares.sizes, strict=False)):
        count = min(max(round(share * int(size)), 1), int(size) - 1)
        drawn = keyed.generator(seed, "held out", client).choice(int(size), count, replace=False)
        held[start + drawn] = True
    counts = np.add.reduceat(held.astype(np.int64), shares.starts[:-1])
    return (
        Shares.from_sizes(shares.places[~held], shares.sizes - counts),
        Shares.from_sizes(shares.places[held], counts),
    )
