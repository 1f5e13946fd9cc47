"""From the share of each class that a client is to get to the samples that it gets."""

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError
from fedpace.data.dataset import Labels

Share = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def divide(
    labels: Labels, proportions: Floats, rng: np.random.Generator, min_samples: int
) -> list[Share]:
    """Shares with these proportions of every class, all samples given and none twice.

    proportions: (classes, clients), the classes ascending, each row of sum 1. Clients below
    `min_samples` are topped up.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    cuts = np.rint(np.cumsum(proportions, axis=1)[:, :-1] * sizes[:, np.newaxis]).astype(np.int64)
    counts = np.diff(cuts, axis=1, prepend=0, append=sizes[:, np.newaxis]).T
    counts = _top_up(counts, (proportions * sizes[:, np.newaxis]).T, min_samples)

    pieces: list[list[Share]] = [[] for _ in counts]
    for column, label in enumerate(classes):
        rows = rng.permutation(np.flatnonzero(labels == label)).astype(np.int64)
        for client, piece in enumerate(np.split(rows, np.cumsum(counts[:, column])[:-1])):
            pieces[client].append(piece)
    return [np.sort(np.concatenate(piece)) for piece in pieces]


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


def _top_up(counts: Counts, expected: Floats, min_samples: int) -> Counts:
    """Counts (clients, classes) with at least `min_samples` a client and the same class totals.

    One sample at a time: the class in which the client is furthest behind its drawn mix, from the
    largest client that has it and can spare one. `expected`: the draw before rounding, which tells
    the mix of a client that got nothing. A class that the draw kept from the client (expected 0) is
    given only where nobody can spare one of its own. Ends always: while one client is below the
    minimum another is above it, since there are min_samples * clients samples or more.
    """
    counts = counts.copy()
    size = counts.sum(axis=1)
    for client in np.flatnonzero(size < min_samples):
        drawn = expected[client].sum()
        mix = expected[client] / drawn if drawn > 0 else counts.sum(axis=0) / counts.sum()
        for _ in range(min_samples - size[client]):
            able = size > min_samples
            offered = counts[able].any(axis=0)
            fitting = offered & (mix > 0)
            choice = fitting if fitting.any() else offered
            label = np.argmax(np.where(choice, mix * min_samples - counts[client], -np.inf))
            donor = np.argmax(np.where(able & (counts[:, label] > 0), size, -1))
            counts[donor, label] -= 1
            counts[client, label] += 1
            size[donor] -= 1
            size[client] += 1
    return counts
