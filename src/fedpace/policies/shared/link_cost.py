"""What a fleet's links cost beside its training: whether they are slow, or nearly free."""

from dataclasses import dataclass

import numpy as np

SLOW, QUICK = 2.0, 1.0
"""Batches that the median client could train in the time of its transfers: links are slow when it is
above the first, until it is below the second (decisions 69 and 70)."""
FREE, COSTLY = 0.1, 0.2
"""The same number: links are nearly free when it is below the first, until it is above the second
(decision 71)."""


@dataclass(slots=True)
class LinkCost:
    """Tells slow links and nearly free ones by the median client; what they were they stay at first.

    Between its two thresholds a median that wavers from beat to beat would change the rules as often.
    """

    slow: bool = False
    free: bool = False

    def learn(self, transfer_s: np.ndarray, batch_s: np.ndarray) -> None:
        """Take in the clients' seconds to get and send the model, and to train a batch."""
        batches = float(np.median(transfer_s / batch_s))
        self.slow = batches > (QUICK if self.slow else SLOW)
        self.free = batches < (COSTLY if self.free else FREE)
