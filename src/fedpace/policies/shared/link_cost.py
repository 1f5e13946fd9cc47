"""Links of a fleet as slow or nearly free, by what they cost beside its training."""

from dataclasses import dataclass

import numpy as np

SLOW, QUICK = 2.0, 1.0
"""Batches that the median client could train in the time of its transfers: links are slow when it is
above SLOW, until it is below QUICK (decisions 69 and 70)."""
FREE, COSTLY = 0.1, 0.2
"""Batches that the median client could train in the time of its transfers: links are nearly free when
it is below FREE, until it is above COSTLY (decision 71)."""


@dataclass(slots=True)
class LinkCost:
    """Classifies links as slow or nearly free by the median client, with hysteresis.

    With one threshold a median that wavers about it would change a policy's rules from beat to beat.
    """

    slow: bool = False
    free: bool = False

    def learn(self, transfer_s: np.ndarray, batch_s: np.ndarray) -> None:
        """Take in the clients' seconds to get and send the model, and to train a batch."""
        batches = float(np.median(transfer_s / batch_s))
        self.slow = batches > (QUICK if self.slow else SLOW)
        self.free = batches < (COSTLY if self.free else FREE)
