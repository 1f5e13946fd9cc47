"""How samples are divided among clients: every sample to one client, every client some samples.

A share is a sorted int64 array of sample indices; entry i of a list of shares belongs to client i.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from fedpace.core import seeds
from fedpace.core.errors import ConfigError
from fedpace.data.dataset import Labels

Share = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """How the training set is divided."""

    kind: Annotated[
        Literal["iid", "dirichlet"], "iid: equal random shares; dirichlet: skewed labels and sizes"
    ] = "dirichlet"
    alpha: Annotated[float, "concentration of the Dirichlet draw; smaller is more skewed"] = 0.1
    min_samples: Annotated[int, "fewest samples a client gets"] = 10

    def __post_init__(self) -> None:
        if self.kind not in ("iid", "dirichlet"):
            raise ConfigError(f"kind is {self.kind!r}; set it to 'iid' or 'dirichlet'")
        _check_alpha(self.alpha)
        if self.min_samples < 1:
            raise ConfigError(f"min_samples is {self.min_samples}; set it to 1 or more")


def partition(labels: Labels, clients: int, settings: PartitionSettings, seed: int) -> list[Share]:
    """The shares that `settings` ask for; the same for the same seed."""
    rng = seeds.generator(seed, "partition")
    if settings.kind == "iid":
        return iid(labels, clients, rng, settings.min_samples)
    return dirichlet(labels, clients, settings.alpha, rng, settings.min_samples)


def iid(labels: Labels, clients: int, rng: np.random.Generator, min_samples: int = 1) -> list[Share]:
    """Random shares whose sizes differ by one at most."""
    _check_feasible(len(labels), clients, min_samples)
    order = rng.permutation(len(labels)).astype(np.int64)
    return [np.sort(share) for share in np.array_split(order, clients)]


def dirichlet(
    labels: Labels, clients: int, alpha: float, rng: np.random.Generator, min_samples: int = 10
) -> list[Share]:
    """Skewed shares: each class is divided by its own draw p ~ Dirichlet(alpha, ..., alpha).

    The recipe of Yurochkin et al. (ICML 2019) and Li et al. (ICDE 2022).

    Differs: they draw everything again until each client has 10 samples, which for alpha = 0.1 and
    64 clients practically never happens. Here there is one draw, and clients below `min_samples` get
    samples from the largest clients, of the classes that the draw gave them (`_top_up`).

    Differs: the common code of this recipe gives nothing more to a client that already holds
    N / clients samples. That evens out the sizes, which are part of the skew, so it is not done.
    """
    _check_alpha(alpha)
    _check_feasible(len(labels), clients, min_samples)
    classes, sizes = np.unique(labels, return_counts=True)
    proportions = rng.dirichlet(np.full(clients, alpha), size=len(classes))
    cuts = np.rint(np.cumsum(proportions, axis=1)[:, :-1] * sizes[:, np.newaxis]).astype(np.int64)
    counts = np.diff(cuts, axis=1, prepend=0, append=sizes[:, np.newaxis]).T
    counts = _top_up(counts, (proportions * sizes[:, np.newaxis]).T, min_samples)

    pieces: list[list[Share]] = [[] for _ in range(clients)]
    for column, label in enumerate(classes):
        rows = rng.permutation(np.flatnonzero(labels == label)).astype(np.int64)
        for client, piece in enumerate(np.split(rows, np.cumsum(counts[:, column])[:-1])):
            pieces[client].append(piece)
    return [np.sort(np.concatenate(piece)) for piece in pieces]


def _top_up(counts: Counts, expected: Floats, min_samples: int) -> Counts:
    """Counts (clients, classes) with at least `min_samples` a client and the same class totals.

    One sample at a time: the class in which the client is furthest behind its drawn mix, from the
    largest client that has it and can spare one. `expected`: the draw before rounding, which tells
    the mix of a client that got nothing. Ends always: while one client is below the minimum another
    is above it, since there are min_samples * clients samples or more.
    """
    counts = counts.copy()
    size = counts.sum(axis=1)
    for client in np.flatnonzero(size < min_samples):
        drawn = expected[client].sum()
        mix = expected[client] / drawn if drawn > 0 else counts.sum(axis=0) / counts.sum()
        for _ in range(min_samples - size[client]):
            able = size > min_samples
            offered = counts[able].any(axis=0)
            label = np.argmax(np.where(offered, mix * min_samples - counts[client], -np.inf))
            donor = np.argmax(np.where(able & (counts[:, label] > 0), size, -1))
            counts[donor, label] -= 1
            counts[client, label] += 1
            size[donor] -= 1
            size[client] += 1
    return counts


def check_partition(shares: Sequence[Share], total: int) -> None:
    """ConfigError unless each client has samples, all in 0..total-1 and none given twice."""
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


def _check_alpha(alpha: float) -> None:
    if not (math.isfinite(alpha) and alpha > 0):
        raise ConfigError(f"alpha is {alpha}; set it to a number above 0, such as 0.1")


def _check_feasible(samples: int, clients: int, min_samples: int) -> None:
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
