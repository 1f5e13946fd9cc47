"""Clients' estimates of the loss, as a policy hears them."""

from collections.abc import Sequence
from typing import Literal

from fedpace.core.events import Arrived, Measured

Estimate = Literal["gradient", "noise", "smoothness", "loss", "slope", "change", "spread"]
SENSIBLE = 1e100
"""Beyond this a number is no measurement."""


def by_client(updates: Sequence[Arrived], event: Measured) -> dict[int, float]:
    """Client -> its number, of those whose number can be one."""
    return {
        update.client: value
        for update, value in zip(updates, event.values, strict=True)
        if value is not None and abs(value) <= SENSIBLE
    }
