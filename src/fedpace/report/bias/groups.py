"""The bias of a run: groups of clients or classes, their share of the data and of the weight."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt

from fedpace.core.evaluation.fairness import SPEED_GROUPS, speed_groups
from fedpace.report.bias.weights import ClientWeights

UNMEASURED = "unmeasured"
"""The group of clients whose speed is not known."""
HELD_SHARE = 0.5
"""Part of a class's samples from which on a group is said to hold that class."""
ROUNDING = 1e-9
"""Of sums of shares."""
Counts = npt.NDArray[np.int64]
"""Samples of each client (row) in each class (column)."""


@dataclass(frozen=True, slots=True)
class GroupBias:
    """A group of clients, or a class of samples.

    data_share: its part of all clients' samples; weight_share: its part of the weight of all updates
    that were aggregated; weight_an_hour: its weight an hour of the run, where 1 is one whole step of
    the model. holds: for groups of clients, the classes of which they have half or more.
    """

    name: str
    clients: int
    data_share: float
    weight_share: float
    weight_an_hour: float
    holds: tuple[str, ...] = ()

    @property
    def ratio(self) -> float | None:
        """How often its data counts as much as its share; None where it has no data."""
        return self.weight_share / self.data_share if self.data_share > 0 else None

    @property
    def distance(self) -> float:
        """How far it is from its share, 1 for none, twice as much being as far as half as much."""
        if self.ratio is None:
            return 1.0
        ratio = max(self.ratio, 1e-9)
        return max(ratio, 1 / ratio)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return asdict(self) | {"ratio": self.ratio, "holds": list(self.holds)}


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Clients of whose data nothing went into the model.

    of: all that have data; data_share: the part of it that is theirs. Over several runs all three are
    means, also over runs in which everybody counts.
    """

    clients: float
    of: float
    data_share: float


@dataclass(frozen=True, slots=True)
class Bias:
    """How far the weight of clients' data is from its share, by speed and by class.

    by_speed: the slow, the middle and the fast third, and those whose speed is not known; none where
    all are alike. by_class: none where labels are not known. moved: part of the weight that would have
    to go to other clients for all to count by their data, in [0, 1); None where nothing was aggregated,
    and then there are no groups either. left_out: None where everybody counts. with_data: clients that
    have data.
    """

    by_speed: tuple[GroupBias, ...] = ()
    by_class: tuple[GroupBias, ...] = ()
    moved: float | None = None
    left_out: LeftOut | None = None
    with_data: float = 0

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "by_speed": [one.to_dict() for one in self.by_speed],
            "by_class": [one.to_dict() for one in self.by_class],
            "moved": self.moved,
            "left_out": None if self.left_out is None else asdict(self.left_out),
        }


def bias_of(
    counted: ClientWeights,
    seconds: Mapping[int, float] | None = None,
    labels: npt.ArrayLike | None = None,
    classes: Sequence[str] = (),
    hours: float | None = None,
) -> Bias:
    """The bias of a run whose messages were counted.

    seconds: a sample of each client, by default as the run has measured them; labels: samples of each
    client (row) in each class (column), where they are known; classes: their names, by default their
    numbers; hours: of the run, by default until the last message.
    """
    clients = sorted(counted.samples)
    samples = np.array([counted.samples[one] for one in clients], dtype=np.float64)
    weights = np.array([counted.weights.get(one, 0.0) for one in clients])
    if not weights.sum() > 0 or not samples.sum() > 0:
        return Bias()
    hours = counted.last_s / 3600 if hours is None else hours
    known = counted.seconds if seconds is None else seconds
    data, given = samples / samples.sum(), weights / weights.sum()
    hourly = weights.sum() / hours if hours > 0 else 0.0
    table = _label_shares(labels, clients)
    names = tuple(classes) or tuple(str(one) for one in range(0 if table is None else table.shape[1]))
    groups = _groups(clients, known)
    by_speed = [
        GroupBias(
            name,
            int(mine.sum()),
            float(data[mine].sum()),
            float(given[mine].sum()),
            float(given[mine].sum() * hourly),
            () if table is None else _held(table * samples[:, None], mine, names),
        )
        for name in (*SPEED_GROUPS, UNMEASURED)
        if groups is not None and (mine := groups == name).any()
    ]
    by_class = []
    if table is not None:
        held, counts = data @ table, given @ table
        by_class = [
            GroupBias(
                name,
                int((table[:, place] > 0).sum()),
                float(held[place]),
                float(counts[place]),
                float(counts[place] * hourly),
            )
            for place, name in enumerate(names)
        ]
    moved = float(np.abs(given - data).sum() / 2)
    return Bias(
        tuple(by_speed),
        tuple(by_class),
        moved if moved > ROUNDING else 0.0,
        _left_out(data, given),
        int((data > 0).sum()),
    )


def mean_bias(runs: Sequence[Bias]) -> Bias:
    """The mean over runs that aggregated something; a group holds the classes that it does in all."""
    runs = [one for one in runs if one.moved is not None]
    if not runs:
        return Bias()
    return Bias(
        _mean_groups([one.by_speed for one in runs]),
        _mean_groups([one.by_class for one in runs]),
        fmean(one.moved for one in runs if one.moved is not None),
        _mean_left_out(runs),
        fmean(one.with_data for one in runs),
    )


def _left_out(data: np.ndarray, given: np.ndarray) -> LeftOut | None:
    """Clients that have data but no weight in the model.

    data, given: shares of the data and of the weight, by client.
    """
    unheard = (data > 0) & (given == 0)
    if not unheard.any():
        return None
    return LeftOut(int(unheard.sum()), int((data > 0).sum()), float(data[unheard].sum()))


def _mean_left_out(runs: Sequence[Bias]) -> LeftOut | None:
    known = [one.left_out for one in runs if one.left_out is not None]
    if not known:
        return None
    clients, share = sum(one.clients for one in known), sum(one.data_share for one in known)
    of = fmean(one.with_data for one in runs)
    return LeftOut(clients / len(runs), of, share / len(runs))


def _mean_groups(runs: Sequence[Sequence[GroupBias]]) -> tuple[GroupBias, ...]:
    together: dict[str, list[GroupBias]] = {}
    for own in runs:
        for one in own:
            together.setdefault(one.name, []).append(one)
    return tuple(
        GroupBias(
            name,
            round(fmean(one.clients for one in own)),
            fmean(one.data_share for one in own),
            fmean(one.weight_share for one in own),
            fmean(one.weight_an_hour for one in own),
            tuple(one for one in own[0].holds if all(one in other.holds for other in own)),
        )
        for name, own in together.items()
    )


def _groups(clients: Sequence[int], seconds: Mapping[int, float]) -> np.ndarray | None:
    """The speed group of each client; None where all are as fast, or nobody's speed is known."""
    known = [place for place, client in enumerate(clients) if client in seconds]
    speeds = [seconds[clients[place]] for place in known]
    if not known or max(speeds) <= 1.001 * min(speeds):
        return None
    groups = np.full(len(clients), UNMEASURED, dtype=object)
    groups[known] = speed_groups(speeds)
    return groups


def _label_shares(labels: npt.ArrayLike | None, clients: Sequence[int]) -> np.ndarray | None:
    """Part of each client's samples in each class; None where labels are not known of all clients."""
    if labels is None:
        return None
    counts = np.asarray(labels, dtype=np.float64)
    if counts.ndim != 2 or len(counts) <= max(clients):
        return None
    mine = counts[clients]
    shares: np.ndarray = mine / np.maximum(mine.sum(axis=1, keepdims=True), 1)
    return shares


def _held(counts: np.ndarray, mine: np.ndarray, names: Sequence[str]) -> tuple[str, ...]:
    totals, own = counts.sum(axis=0), counts[mine].sum(axis=0)
    return tuple(
        name
        for name, total, part in zip(names, totals, own, strict=True)
        if total > 0 and part >= HELD_SHARE * total
    )
