"""Data that arrives while a run goes on, into buffers that can hold only so much of it.

A client's samples have an order of arrival. How many of them have come follows from the time, and which
of those it still has from how many have come; both depend on the seed and the client alone, never on
what was asked before. Arrivals and buffers are those of DYNAMITE (Liu et al., sections 6.3 and 7.1.3).
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from fedpace.core.commands import TOLERANCE
from fedpace.core.errors import Checked, ConfigError, Count, NonNegative, Positive, between
from fedpace.core.random import keyed as seeds
from fedpace.data.dataset import Labels
from fedpace.data.shares import Counts, Share, Shares

BLOCK = 64
"""Periods of random arrivals that one generator draws."""
WIDEST = 3.0


@dataclass(frozen=True, slots=True)
class StreamSettings(Checked):
    """Arrival of data at clients during a run. Numbers of samples are each client's."""

    arrival: Annotated[
        Literal["none", "smooth", "burst", "random"],
        "none: all data is there from the start; smooth: `amount` samples every `every`; burst: "
        "`amount` at once after `every`, and a trickle; random: about `amount` every `every`, now more "
        "and now less, and not the same for all clients",
    ] = "none"
    content: Annotated[
        Literal["iid", "continuous"],
        "iid: a client's samples come in random order; continuous: one class after the other, in the "
        "same sequence with all clients",
    ] = "iid"
    clock: Annotated[
        Literal["rounds", "seconds"],
        "what `every` counts: rounds (versions of the global model), or seconds of the run's clock",
    ] = "rounds"
    initial: Annotated[int, "samples at the start"] = 100
    amount: Annotated[Count, "samples that arrive at a time"] = 50
    every: Annotated[Positive, "rounds or seconds between arrivals; burst: until the burst"] = 1.0
    trickle: Annotated[NonNegative, "burst: samples that arrive in each round or second besides"] = 0.0
    spread: Annotated[
        float,
        between(0, WIDEST),
        "random: how much rates differ between clients, and as much again from one `every` to the "
        "next (sd of the log); 0: one Poisson process",
    ] = 0.5
    buffer: Annotated[Count | None, "most samples that are kept; unset: all"] = None
    keep: Annotated[
        Literal["reservoir", "random", "fifo"],
        "reservoir: every sample that came is kept with the same chance; random: a new one replaces "
        "any; fifo: the newest are kept",
    ] = "reservoir"

    def _check_rest(self) -> None:
        if self.initial < 1:
            raise ConfigError(
                f"initial is {self.initial}, but a client cannot train on nothing; set it to 1 or more"
            )


def make_stream(settings: StreamSettings, samples: Sequence[int], seed: int) -> "Stream | None":
    """The stream that settings ask for; None where all data is there from the start."""
    return None if settings.arrival == "none" else Stream(settings, samples, seed)


class Stream:
    """Samples that have arrived at each client by a time, and those that its buffer still holds.

    samples: all that ever arrive at each client.
    """

    def __init__(self, settings: StreamSettings, samples: Sequence[int], seed: int) -> None:
        self.settings = settings
        self._samples = array("q", samples)
        self._seed = seed
        self._ends: dict[int, Counts] = {}
        """Client -> random arrivals by the end of its first periods: a speed-up, not a state."""

    def arrived(self, client: int, version: int, at: float) -> int:
        """Samples that have come by then. version: of the global model, from 0; at: seconds."""
        clock = version if self.settings.clock == "rounds" else at
        total, initial = self._samples[client], self.settings.initial
        if total <= initial or not clock > 0:
            return min(initial, total)
        return min(initial + self._since_start(client, float(clock), total - initial), total)

    def most(self, client: int) -> int:
        """The samples that a client holds at most."""
        buffer, total = self.settings.buffer, self._samples[client]
        return total if buffer is None else min(buffer, total)

    def count(self, client: int, seen: int) -> int:
        """Number of samples that a client holds after `seen` have arrived."""
        return min(seen, self.most(client))

    def held(self, client: int, seen: int) -> Share:
        """Samples that a client holds after `seen` have arrived: places in their order, ascending."""
        size, keep = self.most(client), self.settings.keep
        if seen <= size:
            return np.arange(seen)
        if keep == "fifo":
            return np.arange(seen - size, seen)
        # The first `size` fill the buffer; after that the j-th goes to a place in it, or past it.
        # Differs: Algorithm 4 has `<` in line 4, by which the buffer would never be full.
        numbers = np.arange(size, seen)
        draws = seeds.generator(self._seed, "stream.keep", client).random(len(numbers))
        places = np.floor(draws * (numbers + 1 if keep == "reservoir" else size)).astype(np.int64)
        taken = places < size
        buffer = np.arange(size)
        buffer[places[taken]] = numbers[taken]  # of several for one place the last one stays
        return np.sort(buffer)

    def _since_start(self, client: int, clock: float, total: int) -> int:
        """Arrivals after the start, of which no more than `total` matter."""
        settings = self.settings
        periods = clock / settings.every * (1 + TOLERANCE)
        match settings.arrival:
            case "smooth":
                return settings.amount * math.floor(periods)
            case "burst":
                burst = settings.amount if periods >= 1 else 0
                return burst + math.floor(settings.trickle * clock * (1 + TOLERANCE))
            case "random":
                return self._random(client, periods, total)
        return total

    def _random(self, client: int, periods: float, total: int) -> int:
        """A Poisson process whose rate is drawn anew for each period."""
        whole = math.floor(periods)
        ends = self._ends_of(client, whole, total)
        if len(ends) <= whole:
            return total
        before = int(ends[whole - 1]) if whole else 0
        moments = seeds.generator(self._seed, "stream.moments", client, whole)
        in_period = moments.random(int(ends[whole]) - before)
        return before + int(np.count_nonzero(in_period < periods - whole))

    def _ends_of(self, client: int, period: int, total: int) -> Counts:
        """Arrivals by the end of period 0, 1, ...; up to `period`, or until all have come."""
        settings, ends = self.settings, self._ends.get(client, np.zeros(0, dtype=np.int64))
        while len(ends) <= period and not (len(ends) and ends[-1] >= total):
            rates = settings.amount * self._factors("client", 1, client)
            rates = rates * self._factors("periods", BLOCK, client, len(ends) // BLOCK)
            counts = seeds.generator(self._seed, "stream.counts", client, len(ends) // BLOCK)
            # Higher rates would bring everything just as well, and take memory.
            came = counts.poisson(np.minimum(rates, 2 * total + 100))
            ends = np.concatenate([ends, np.cumsum(came) + (ends[-1] if len(ends) else 0)])
        self._ends[client] = ends
        return ends

    def _factors(self, purpose: str, count: int, *keys: int) -> np.ndarray:
        """Lognormal numbers of mean 1."""
        spread = self.settings.spread
        draw = seeds.generator(self._seed, f"stream.{purpose}", *keys)
        return draw.lognormal(-(spread**2) / 2, spread, count)


def order_of_arrival(
    shares: Sequence[Share], labels: Labels, content: Literal["iid", "continuous"], seed: int
) -> Shares:
    """Each client's samples in their order of arrival.

    Differs: the paper gives clients as much of every class in each interval of an i.i.d. stream; here
    the order is random, so that it is as much on average. In a continuous stream a client goes on to
    the next class when it has got its own samples of the last one: all together where they have as
    many of each class.
    """
    turns = _turns(labels, seed) if content == "continuous" else None
    division = Shares.from_arrays(shares)
    places = np.empty_like(division.places)
    ordered = Shares(places, division.starts)
    for client, share in enumerate(division):
        order = seeds.generator(seed, "stream.order", client).permutation(len(share))
        np.take(share, order, out=ordered[client])
    if turns is not None:
        places[:] = places[np.lexsort((turns[places], division.clients))]
    return ordered


def _turns(labels: Labels, seed: int) -> Counts:
    """For each sample, when the turn of its class comes: classes are drawn without replacement."""
    if labels.ndim != 1 or labels.dtype.kind != "i":
        raise ConfigError(
            f"a continuous stream needs one class a sample, but targets are {labels.dtype} of shape "
            f"{labels.shape}; use stream.content 'iid'"
        )
    classes, which = np.unique(labels, return_inverse=True)
    return seeds.generator(seed, "stream.classes").permutation(len(classes))[which]
