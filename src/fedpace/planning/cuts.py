"""Where to cut a model: how many output-side layers fit a share of work or a span of time."""

import numpy as np

from fedpace.core.model import ModelProfile

TOLERANCE = 1e-9
"""Relative room for rounding: a schedule fills its time exactly, and must not miss it by a bit."""


def by_parameters(profile: ModelProfile, fractions: np.ndarray) -> np.ndarray:
    """Largest depth whose share of the bytes is at most the fraction; never less than 1."""
    depths = np.searchsorted(profile.byte_share, fractions * (1 + TOLERANCE), side="right")
    return np.maximum(depths, 1)


def by_cost(
    profile: ModelProfile,
    batches: np.ndarray,
    batch_s: np.ndarray,
    up_s: np.ndarray,
    budget_s: np.ndarray,
) -> np.ndarray:
    """Largest depth at which `batches` batches and the upload fit the budget; 0 where none does.

    All arrays have one entry a client; batch_s and up_s are for the full model.
    """
    predicted = np.outer(batches * batch_s, profile.compute_share) + np.outer(
        up_s, profile.byte_share
    )  # (clients, depths), rising along each row
    fits: np.ndarray = predicted <= (budget_s * (1 + TOLERANCE))[:, None]
    depths: np.ndarray = np.count_nonzero(fits, axis=1)
    return depths


def batches_at_depth_one(profile: ModelProfile, batch_s: float, up_s: float, budget_s: float) -> int:
    """How many batches of last-layer training fit before its upload must begin; may be negative."""
    compute_s = budget_s * (1 + TOLERANCE) - up_s * float(profile.byte_share[0])
    return int(np.floor(compute_s / (batch_s * float(profile.compute_share[0])) + TOLERANCE))
