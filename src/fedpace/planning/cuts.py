"""Partial training: the number of output-side layers that fit a share of work or a span of time."""

from dataclasses import dataclass

import numpy as np

from fedpace.core.commands import TOLERANCE
from fedpace.core.model import ModelProfile
from fedpace.planning.checks import check_columns, check_number


def depths_by_bytes(profile: ModelProfile, fractions: np.ndarray) -> np.ndarray:
    """Largest depth whose share of the bytes is at most the fraction; never less than 1."""
    check_columns(fractions=fractions)
    depths = np.searchsorted(profile.byte_share, fractions * (1 + TOLERANCE), side="right")
    return np.maximum(depths, 1)


def depths_by_time(
    profile: ModelProfile,
    batches: np.ndarray,
    batch_s: np.ndarray,
    up_s: np.ndarray,
    budget_s: np.ndarray,
) -> np.ndarray:
    """Largest depth at which `batches` batches and the upload fit the budget; 0 where none does.

    All arrays have one entry a client; batch_s and up_s are for the full model.
    """
    check_columns(batches=batches, batch_s=batch_s, up_s=up_s, budget_s=budget_s)
    predicted = np.outer(batches * batch_s, profile.compute_share) + np.outer(
        up_s, profile.byte_share
    )  # (clients, depths), rising along each row
    fits: np.ndarray = predicted <= (budget_s * (1 + TOLERANCE))[:, None]
    depths: np.ndarray = np.count_nonzero(fits, axis=1)
    return depths


def batches_at_depth_one(profile: ModelProfile, batch_s: float, up_s: float, budget_s: float) -> int:
    """Number of batches of last-layer training that fit before its upload; may be negative."""
    check_number("batch_s", batch_s, above=0)
    check_number("up_s", up_s, least=0)
    check_number("budget_s", budget_s)
    compute_s = budget_s * (1 + TOLERANCE) - up_s * float(profile.byte_share[0])
    return int(np.floor(compute_s / (batch_s * float(profile.compute_share[0])) + TOLERANCE))


@dataclass(frozen=True, slots=True)
class PartialWork:
    """A depth (output-side layers) to train, and the batches in all (None: as many as wanted)."""

    depth: int
    batches: int | None = None


def fit_partial_work(
    profile: ModelProfile,
    wanted: np.ndarray,
    done: np.ndarray,
    begun: np.ndarray,
    wait_s: np.ndarray,
    batch_s: np.ndarray,
    send_s: np.ndarray,
    left_s: np.ndarray,
) -> list[PartialWork | None]:
    """The most work of each client that is predicted to arrive in the time that is left.

    wanted: batches in all; done: full-model batches that are over; begun: 1 in the middle of
    another one, which ends after wait_s (0: wait_s is the time until computing can begin);
    batch_s, send_s: for the full model; left_s: until the update must be there.

    In this order: the deepest cut over all wanted batches; the last layer over fewer; what is done
    already, as many layers as can be sent, without the batch that is running; None.
    """
    check_columns(
        wanted=wanted,
        done=done,
        begun=begun,
        wait_s=wait_s,
        batch_s=batch_s,
        send_s=send_s,
        left_s=left_s,
    )
    budget_s = left_s - wait_s
    depths = depths_by_time(profile, np.maximum(wanted - done - begun, 0), batch_s, send_s, budget_s)
    cuts: list[PartialWork | None] = [
        PartialWork(depth) if depth else None for depth in depths.tolist()
    ]
    for i in np.flatnonzero(depths == 0).tolist():
        more = batches_at_depth_one(profile, batch_s[i], send_s[i], budget_s[i])
        batches = int(done[i] + begun[i]) + more
        if more >= 0 and batches > 0:
            cuts[i] = PartialWork(1, batches)
            continue
        depth = int(np.count_nonzero(send_s[i] * profile.byte_share <= left_s[i] * (1 + TOLERANCE)))
        if depth > 0 and done[i] > 0:
            cuts[i] = PartialWork(depth, int(done[i]))
    return cuts


def progress_since_probe(
    told_s: np.ndarray,
    down_s: np.ndarray,
    batch_s: np.ndarray,
    wanted: np.ndarray,
    going_on: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Progress of clients that train on after their probe, at the time when their work reaches them.

    Batches that are over, 1 where another one that is wanted has begun, and the time at which the
    client can go on; times from the sending of the model. Others can begin after their download.
    """
    check_columns(told_s=told_s, down_s=down_s, batch_s=batch_s, wanted=wanted, going_on=going_on)
    progress = (told_s - down_s) / batch_s
    done = np.where(going_on, np.floor(progress * (1 + TOLERANCE)).clip(1, wanted), 0)
    begun = going_on & (done < wanted) & (progress * (1 - TOLERANCE) > done)
    return done, begun, down_s + (done + begun) * batch_s
