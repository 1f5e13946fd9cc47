"""Rounds with a deadline in which backpropagation stops on time: what ADEL-FL and SALF have in common.

A round gives every client a batch; it trains from the output towards the input until its time is up
and sends the layers that it got through. At the deadline each layer becomes the mean of those who
reached it, corrected for the chance that nobody does (ADEL-FL, eq. 5). Who is not known yet trains one
whole batch, which tells its speed and counts as an update.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import numpy as np

from fedpace.core.commands import (
    Aggregate,
    Cancel,
    CancelTimer,
    Command,
    Finish,
    Measure,
    Note,
    SetTimer,
    Train,
    Work,
)
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Joined, Left, Measured, Rates, Started, Timer
from fedpace.core.policy import Commands, Context, Policy
from fedpace.core.roster import Roster
from fedpace.core.rounding import TOLERANCE
from fedpace.planning.deadline_bound import missed_at

S = TypeVar("S")
END = "round ends"
Estimate = Literal["gradient", "noise", "smoothness"]


@dataclass(frozen=True, slots=True)
class Averaging:
    """How updates come together and speeds are learned; a table of its own in settings."""

    weigh: Annotated[
        Literal["equal", "samples"], "clients count alike in a mean, or by the samples they have"
    ] = "equal"
    cap: Annotated[float, "largest chance of a missed layer that is corrected for"] = 0.9
    smoothing: Annotated[float, "weight of the last measurement in a client's speed, 0..1"] = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.cap < 1:
            raise ConfigError(f"cap is {self.cap}; it is a chance, set it in [0, 1)")
        if not 0 < self.smoothing <= 1:
            raise ConfigError(f"smoothing is {self.smoothing}; set it above 0, and at most 1")


@dataclass(frozen=True, slots=True)
class Speed:
    """What is known of a client.

    samples_per_s: P_u, samples a second through one layer; up_s, down_s: transfers of the whole model,
    together B_u; guessed: it has not delivered yet, this is what it cannot be faster than.
    """

    samples_per_s: float
    down_s: float
    up_s: float
    guessed: bool = False

    @property
    def link_s(self) -> float:
        return self.down_s + self.up_s


@dataclass(frozen=True, slots=True)
class Round:
    """What a round gives out. batches: client -> samples of a step, of clients whose speed is known."""

    deadline_s: float
    batches: Mapping[int, int]


class Layered(Policy[S]):
    """One round after the other; `next_round` says how long and with which batches, or that it is over.

    The first round is a warm-up: everybody trains one whole batch, and it lasts until all are there,
    or for `warm_up_s` if two are by then. measure: what is asked about its updates.
    """

    def __init__(
        self,
        settings: S,
        context: Context,
        averaging: Averaging,
        warm_up_s: float,
        measure: tuple[Estimate, ...] = (),
    ) -> None:
        super().__init__(settings, context)
        self.roster = Roster()
        self.speeds: dict[int, Speed] = {}
        self.version = 0
        self.notes: list[Note] = []
        """Said before the next round begins."""
        self.capped = 0
        """How often a layer's chance to be missed was capped."""
        self.estimates: dict[Estimate, dict[int, float]] = {}
        self._averaging, self._warm_up_s, self._measure = averaging, warm_up_s, measure
        self._started = self._over = self._overdue = False
        self._running: Round | None = None
        self._asked_at = 0.0
        self._open: dict[int, int] = {}
        self._work: dict[int, Work] = {}
        self._arrived: list[Arrived] = []
        self._missed: tuple[float, ...] | None = None
        self._requests: dict[int, Estimate] = {}

    def next_round(self, at: float) -> Round | Finish:
        """What is given out now; speeds of some clients are known."""
        raise NotImplementedError

    # What happens

    def on_started(self, event: Started) -> Commands:
        self._started = True
        return self._begin(event.at)

    def on_joined(self, event: Joined) -> Commands:
        self.roster.join(event.client, event.samples)
        idle = not self._open and not self._arrived and self._running is None
        return self._begin(event.at) if self._started and idle and not self._over else ()

    def on_left(self, event: Left) -> Commands:
        self.roster.leave(event.client)
        return ()

    def on_arrived(self, event: Arrived) -> Commands:
        del self._open[event.client]
        self._arrived.append(event)
        self._learn(event.client, event.rates)
        return self._warm_up_over(event.at)

    def on_failed(self, event: Failed) -> Commands:
        del self._open[event.client]
        self._disappoint(event.client, event.at)
        return self._warm_up_over(event.at)

    def on_timer(self, event: Timer) -> Commands:
        if self._running is None:
            self._overdue = True
            return self._warm_up_over(event.at)
        return self._end(event.at)

    def on_measured(self, event: Measured) -> Commands:
        what = self._requests.pop(event.request)
        self.estimates[what] = {
            update.client: value
            for update, value in zip(self._arrived, event.values, strict=True)
            if value is not None
        }
        return () if self._requests else self._aggregate(event.at)

    # A round begins

    def _begin(self, at: float) -> Iterator[Command]:
        clients = self.roster.online
        if not clients:
            self._running = None
            return
        round_: Round | None = None
        if self.version:
            decided = self.next_round(at)
            yield from self.notes
            self.notes.clear()
            if isinstance(decided, Finish):
                self._over = True
                yield decided
                return
            round_ = decided
        self._running, self._asked_at = round_, at
        for client in clients:
            self._open[client] = self.new_task()
            self._work[client] = work = self._work_of(client, round_, at)
            yield Train(client, self._open[client], self.version, work)
        if round_ is None:
            self._overdue = False
            yield SetTimer(END, at + self._warm_up_s)
            return
        # With somebody whose speed is not known the chances are not either.
        self._missed = self._chances(round_) if round_.batches.keys() >= set(clients) else None
        yield SetTimer(END, at + round_.deadline_s)

    def _work_of(self, client: int, round_: Round | None, at: float) -> Work:
        if round_ is None or client not in round_.batches:
            asked = bool(self._measure) and round_ is None
            return Work(self.context.batch_size, steps=1, estimate=asked or None)
        return Work(
            round_.batches[client],
            steps=self.context.steps or 1,
            stop_at=max(at + self._time_s(round_) - self.speeds[client].up_s, at),
            stop_in="layer",
        )

    def _time_s(self, round_: Round) -> float:
        """The part of a round that is used: a network gets its slack, a clock its rounding."""
        return round_.deadline_s / (1 + self.context.slack) * (1 - TOLERANCE)

    def _chances(self, round_: Round) -> tuple[float, ...]:
        """The chance, for each layer, that nobody reaches it.

        Differs: Lemma 1 has a bound that is the same for all rounds of equal length; with the batches
        as they were rounded and clipped the chance is exact, and the correction unbiased.
        """
        computing_s = np.array(
            [self._time_s(round_) - self.speeds[client].link_s for client in round_.batches]
        )
        speeds = np.array([self.speeds[client].samples_per_s for client in round_.batches])
        rates = speeds * np.maximum(computing_s, 0.0) / np.array(list(round_.batches.values()))
        chances: list[float] = missed_at(rates, self.context.model.depth).tolist()
        self.capped += sum(chance > self._averaging.cap for chance in chances)
        return tuple(min(chance, self._averaging.cap) for chance in chances)

    # A round ends

    def _warm_up_over(self, at: float) -> Commands:
        """End a warm-up if all are there, or if time is up and two are; others go by their deadline."""
        if self._running is not None:
            return ()
        if self._open and not (self._overdue and len(self._arrived) >= 2):
            return ()
        return self._end(at) if self._arrived else self._begin(at)

    def _end(self, at: float) -> Iterator[Command]:
        yield CancelTimer(END)
        for client, task in self._open.items():
            yield Cancel(client, task, "late")
            self._disappoint(client, at)
        self._open = {}
        if self._running is None and self._measure:
            for what in self._measure:
                request = len(self._requests) + 1
                self._requests[request] = what
                yield Measure(request, what, tuple(update.task for update in self._arrived))
            return
        yield from self._aggregate(at)

    def _aggregate(self, at: float) -> Iterator[Command]:
        if not self._arrived:
            yield Note("empty round: nobody got through a layer in time")
        if self._missed is not None and max(self._missed) >= self._averaging.cap:
            yield Note(
                f"the chance that nobody reaches a layer was capped at {self._averaging.cap:g}, "
                f"{self.capped} times so far; deadlines are very short for these batches"
            )
        yield Aggregate(
            tuple(update.task for update in self._arrived),
            tuple(self._weight(update.client) for update in self._arrived),
            missed=self._missed if self._arrived else None,
        )
        self.version += 1
        self._arrived, self._missed, self._running = [], None, None
        yield from self._begin(at)

    def _weight(self, client: int) -> float:
        return float(self.roster.samples(client)) if self._averaging.weigh == "samples" else 1.0

    # What is known

    def _learn(self, client: int, rates: Rates) -> None:
        size = min(self._work[client].batch_size, self.roster.samples(client))
        new = Speed(
            self.context.model.depth * size / max(rates.batch_s, 1e-12), rates.down_s, rates.up_s
        )
        old = self.speeds.get(client)
        if old is not None and not old.guessed:
            share = self._averaging.smoothing
            new = Speed(
                1 / ((1 - share) / old.samples_per_s + share / new.samples_per_s),
                (1 - share) * old.down_s + share * new.down_s,
                (1 - share) * old.up_s + share * new.up_s,
            )
        self.speeds[client] = new

    def _disappoint(self, client: int, at: float) -> None:
        """A client came to nothing. If it never delivered, it is slower than what it was taken for."""
        old = self.speeds.get(client)
        known = [speed for speed in self.speeds.values() if not speed.guessed]
        if old is not None and old.guessed:
            # Not without end: one client that never answers must not spoil the plan of the others.
            least = min((speed.samples_per_s for speed in known), default=old.samples_per_s) / 8
            slower = min(old.samples_per_s, max(old.samples_per_s / 2, least))
            self.speeds[client] = Speed(slower, old.down_s, old.up_s, guessed=True)
        elif old is None and at > self._asked_at:
            size = min(self._work[client].batch_size, self.roster.samples(client))
            self.speeds[client] = Speed(
                self.context.model.depth * size / (at - self._asked_at),
                float(np.median([speed.down_s for speed in known])) if known else 0.0,
                float(np.median([speed.up_s for speed in known])) if known else 0.0,
                guessed=True,
            )
