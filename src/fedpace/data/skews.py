"""Skewed partitions: clients differ in their classes and in how many samples they have.

`dirichlet` is the usual benchmark; `by_class` and `dual_dirichlet` are those of FedCompass (Li et al.,
ICLR 2024, appendix D.1).
"""

import math
from typing import Annotated

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import Allowed, ConfigError, Count, check
from fedpace.data.dataset import Labels
from fedpace.data.divide import Floats, check_feasible, divide_by_proportions
from fedpace.data.shares import Shares

TRIES = 100
MEAN, SPREAD = 10.0, 3.0  # mu and sigma of appendix D.1.1
LEAST_ALPHA, MOST_ALPHA = 1e-300, 1e300  # beyond them a Dirichlet draw is all zeros
Concentration = Annotated[
    float,
    Allowed(
        f"between {LEAST_ALPHA:g} and {MOST_ALPHA:g}, such as 0.1",
        lambda alpha: LEAST_ALPHA <= alpha <= MOST_ALPHA,
    ),
]


def dirichlet(
    labels: Labels, clients: int, alpha: float, rng: np.random.Generator, min_samples: int = 10
) -> Shares:
    """Skewed shares: each class is divided by its own draw p ~ Dirichlet(alpha, ..., alpha).

    The recipe of Yurochkin et al. (ICML 2019) and Li et al. (ICDE 2022).

    Differs: they draw everything again until each client has 10 samples, which for alpha = 0.1 and
    64 clients practically never happens. Here there is one draw, and clients below `min_samples` get
    samples from the largest clients, of the classes that the draw gave them.

    Differs: the common code of this recipe gives nothing more to a client that already holds
    N / clients samples. That evens out the sizes, which are part of the skew, so it is not done.
    """
    check("alpha", alpha, Concentration)
    check_feasible(len(labels), clients, min_samples)
    classes = len(np.unique(labels))
    proportions = rng.dirichlet(np.full(clients, alpha), size=classes)
    return divide_by_proportions(labels, proportions, rng, min_samples)


def by_class(
    labels: Labels,
    clients: int,
    min_classes: int | None,
    max_classes: int | None,
    rng: np.random.Generator,
    min_samples: int = 10,
) -> Shares:
    """A few classes a client, each class divided among its holders (Algorithm 4, CLASSPARTITION).

    None is the paper's: 5 and 6 classes for fewer than 10 clients, 3 and 5 from 10 on. A holder may
    get none of a class that has few samples for its number of holders.

    Differs: weights are drawn again until positive; the paper's would be negative once in 2,300.

    Differs: clients below `min_samples` are topped up, with classes of their own where anybody who
    can spare samples has any; the paper sets no minimum.
    """
    check_feasible(len(labels), clients, min_samples)
    classes = len(np.unique(labels))
    paper = (5, 6) if clients < 10 else (3, 5)
    least = paper[0] if min_classes is None else min_classes
    most = paper[1] if max_classes is None else max_classes
    check_classes(least, most)
    if most > classes:
        raise ConfigError(
            f"max_classes is {most}, but there are {classes} classes; set it to {classes} at most"
        )
    if clients * most < classes:
        raise ConfigError(
            f"max_classes is {most}, but {clients} clients must hold all {classes} classes; "
            f"set it to {math.ceil(classes / clients)} or more"
        )
    proportions = np.zeros((classes, clients))
    for label, holders in enumerate(_holders(clients, classes, least, most, rng)):
        weights = _positive_normal(int(holders.sum()), rng)  # line 11
        proportions[label, holders] = weights / weights.sum()  # line 12
    return divide_by_proportions(labels, proportions, rng, min_samples)


def dual_dirichlet(
    labels: Labels,
    clients: int,
    size_alpha: float | None,
    alpha: float,
    rng: np.random.Generator,
    min_samples: int = 10,
) -> Shares:
    """Two draws: the size of each client, and its mix of classes (Algorithm 5, DUALDIRICHLETPARTITION).

    size_alpha: alpha_1, None is the paper's, the number of clients; alpha: alpha_2, the paper's is 0.5.

    Differs: the paper's line 11 divides by `(sum(client_wts), c)`. Read here as the sum over clients
    of client_wts[i] * class_wts[i][c], the only one that gives every sample once. A client's mix is
    thus its draw, pulled towards classes that few others have.

    Differs: a class in which all weights are 0 (a small alpha leaves most of them 0 in floating point)
    goes to one client, drawn by size; the paper's line would divide by 0.

    Differs: clients below `min_samples` are topped up; the paper sets no minimum.
    """
    size_alpha = float(clients) if size_alpha is None else size_alpha
    check("size_alpha", size_alpha, Concentration)
    check("alpha", alpha, Concentration)
    check_feasible(len(labels), clients, min_samples)
    _, sizes = np.unique(labels, return_counts=True)
    client_wts = rng.dirichlet(np.full(clients, size_alpha / clients))  # lines 2, 5, 7
    class_wts = rng.dirichlet(alpha * sizes / sizes.sum(), size=clients)  # lines 3, 4, 6, 8
    # A size of exactly 0 would hide the mix with which the client is to be topped up.
    weights = (np.maximum(client_wts, LEAST_ALPHA)[:, np.newaxis] * class_wts).T
    for label in np.flatnonzero(~weights.any(axis=1)):
        weights[label, rng.choice(clients, p=client_wts)] = 1.0
    proportions = weights / weights.sum(axis=1, keepdims=True)  # line 11
    return divide_by_proportions(labels, proportions, rng, min_samples)


def check_classes(least: int, most: int) -> None:
    """ConfigError unless a number of classes can lie between the two."""
    check("min_classes", least, Count)
    if least > most:
        raise ConfigError(
            f"min_classes is {least}, but max_classes is {most}; set min_classes to {most} at most, "
            f"or max_classes to {least} or more"
        )


def _holders(
    clients: int, classes: int, least: int, most: int, rng: np.random.Generator
) -> npt.NDArray[np.bool_]:
    """Classes that each client holds, (classes, clients): lines 2-9, with every class held by someone.

    Differs: where all classes are hardly ever held by chance (two clients of 5 classes in 10: one
    draw in 252), the paper draws on. Here the last of 100 draws is mended: a class that nobody holds
    replaces, with one of its holders, the class that most hold. Where no class has two holders, it
    goes to the client with the fewest classes.
    """
    for _ in range(TRIES):
        number = rng.integers(least, most, endpoint=True, size=clients)
        ranks = rng.permuted(np.tile(np.arange(classes), (clients, 1)), axis=1)
        held = (ranks < number[:, np.newaxis]).T
        if held.any(axis=1).all():
            return held
    for label in np.flatnonzero(~held.any(axis=1)):
        holders = held.sum(axis=1)
        commonest = holders.argmax()
        if holders[commonest] > 1:
            client = rng.choice(np.flatnonzero(held[commonest]))
            held[commonest, client] = False
        else:
            # It has room: the held classes, one holder each, are fewer than clients * most.
            client = held.sum(axis=0).argmin()
        held[label, client] = True
    return held


def _positive_normal(size: int, rng: np.random.Generator) -> Floats:
    values = rng.normal(MEAN, SPREAD, size)
    while (values <= 0).any():
        wrong = np.flatnonzero(values <= 0)
        values[wrong] = rng.normal(MEAN, SPREAD, len(wrong))
    return values
