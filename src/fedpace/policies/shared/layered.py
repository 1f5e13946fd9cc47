"""Rounds with a deadline in which backpropagation stops on time: what ADEL-FL and SALF have in common.

A round gives every client a batch; it trains from the output towards the input until its time is up
and sends the layers that it got through. At the deadline each layer becomes the mean of those who
reached it, corrected for the chance that nobody does (ADEL-FL, eq. 5). Who is not known yet trains one
whole batch, which tells its speed and counts as an update.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

import numpy as np

from fedpace.core.commands import (
    TOLERANCE,
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
from fedpace.core.errors import BelowOne, Checked, ConfigError, Fraction
from fedpace.core.events import Arrived, Failed, Joined, Measured, Rates, Started, Timer
from fedpace.core.policy import Commands, Context, Policy
from fedpace.planning.reach import missed_chances_of_model
from fedpace.policies.shared.answers import Estimate, by_client
from fedpace.policies.shared.medians import Medians

S = TypeVar("S")
END = "round ends"
SILENT = 3
"""After so many rounds in a row without a layer a client is asked like a newcomer."""
EVIDENCE = 15.0
"""So many misses, or reaches, of a layer have to fail to come before chance is given up: e^-15."""
Times = Literal["auto", "exponential", "steady"]


@dataclass(frozen=True, slots=True)
class Averaging(Checked):
    """Settings of averaging and of learning speeds; a table of its own."""

    weigh: Annotated[
        Literal["equal", "samples"], "clients count alike in a mean, or by the samples they have"
    ] = "equal"
    cap: Annotated[BelowOne, "largest chance of a missed layer that is corrected for"] = 0.9
    smoothing: Annotated[Fraction, "weight of the last measurement in a client's speed, 0..1"] = 0.5


@dataclass(frozen=True, slots=True)
class Speed:
    """Measured or guessed speed of a client.

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
class LayeredRound:
    """The work of a round. batches: client -> samples of a step, of clients whose speed is known.

    rate: where set, nobody computes for longer than would let it through so many layers on average.
    """

    deadline_s: float
    batches: Mapping[int, int]
    rate: float | None = None


class Layered(Policy[S]):
    """One round after the other; `next_round` says how long and with which batches, or that it is over.

    The first round is a warm-up: everybody trains one whole batch, and it lasts until all are there, or
    for `warm_up_s` if somebody is by then; at `give_up_s` it is over. What it `measures` is asked about
    its updates. times: how long layers take, "exponential" around their cost or "steady"; "auto" begins
    with the first, and goes over to the second when what happens cannot be chance.
    """

    @classmethod
    def takes_memory(cls, adaptive: bool) -> bool:
        return False

    @classmethod
    def measures(cls, settings: S) -> tuple[Estimate, ...]:
        return ()

    def __init__(
        self,
        settings: S,
        context: Context,
        averaging: Averaging,
        times: Times,
        warm_up_s: float,
        give_up_s: float | None = None,
    ) -> None:
        super().__init__(settings, context)
        if context.steps is None and context.epochs != 1:
            raise ConfigError(
                f"epochs is {context.epochs}, but this policy trains steps that may stop on their way; "
                f"set train.steps instead"
            )
        self.local_steps = context.steps or 1
        self.speeds: dict[int, Speed] = {}
        self.notes: list[Note] = []
        """Said before the next round begins."""
        self.steady = times == "steady"
        self.estimates: dict[Estimate, dict[int, float]] = {}
        self._averaging, self._measure = averaging, self.measures(settings)
        self._warm_up_s, self._give_up_s = warm_up_s, give_up_s
        self._over = self._overdue = False
        self._running: LayeredRound | None = None
        self._asked_at = 0.0
        self._batch: dict[int, int] = {}
        """Client -> samples of a step, as it was given last."""
        self._usual: Medians | None = None
        """Of all who have delivered, where it is asked for while a round ends."""
        self._silent: Counter[int] = Counter()
        self._arrived: list[Arrived] = []
        self._chances: np.ndarray | None = None
        self._capped = 0
        self._requests: dict[int, Estimate] = {}
        self._believes = times == "auto"
        self._surprise = np.zeros((2, context.model.depth))
        """Expected misses of layers that were always reached, and reaches of those that never were."""

    def next_round(self, at: float) -> LayeredRound | Finish:
        """The round to begin now, or the end; speeds of some clients are known."""
        raise NotImplementedError

    # What happens

    def on_started(self, event: Started) -> Commands:
        return self._begin(event.at)

    def on_joined(self, event: Joined) -> Commands:
        idle = not self.books.open and not self._arrived and self._running is None
        return self._begin(event.at) if self.books.started and idle and not self._over else ()

    def on_arrived(self, event: Arrived) -> Commands:
        self._silent.pop(event.client, None)
        self._arrived.append(event)
        self._learn(event.client, event.rates)
        return self._warm_up_over(event.at)

    def on_failed(self, event: Failed) -> Commands:
        self._came_to_nothing(event.client)
        return self._warm_up_over(event.at)

    def on_timer(self, event: Timer) -> Commands:
        if self._running is not None:
            return self._end(event.at)
        if self._give_up_s is not None and event.at >= self._give_up_s * (1 - TOLERANCE):
            self._over = True
            given = f"the {self._give_up_s:g} s of the budget"
            return (Finish(f"nobody arrived within {given}; give a budget that fits one round"),)
        self._overdue = True
        return self._warm_up_over(event.at)

    def on_measured(self, event: Measured) -> Commands:
        self.estimates[self._requests.pop(event.request)] = by_client(self._arrived, event)
        return () if self._requests else self._aggregate(event.at)

    # A round begins

    def _begin(self, at: float) -> Iterator[Command]:
        clients = self.books.clients.online
        if not clients:
            self._running = None
            return
        round_: LayeredRound | None = None
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
            work = self._work_of(client, round_, at)
            self._batch[client] = work.batch_size
            yield Train(client, self.new_task(), self.version, work)
        if round_ is None:
            self._overdue = False
            yield SetTimer(END, at + self._warm_up_s)
            return
        known = round_.batches.keys() >= set(clients)
        # With somebody whose speed is not known the chances are not either; steady times have none.
        self._chances = self._missed(round_) if known and not self.steady else None
        yield SetTimer(END, at + round_.deadline_s)

    def _work_of(self, client: int, round_: LayeredRound | None, at: float) -> Work:
        if round_ is None or client not in round_.batches:
            asked = self._measure and round_ is None
            return Work(self.context.batch_size, steps=1, estimate="numbers" if asked else None)
        stop_at = at + self.speeds[client].down_s + self._window_s(client, round_)
        return Work(
            round_.batches[client], steps=self.local_steps, stop_at=max(stop_at, at), stop_in="layer"
        )

    def _window_s(self, client: int, round_: LayeredRound) -> float:
        """Seconds for computing: what transfers leave of a round, or less, so that rates are equal.

        A network gets its slack and a clock its rounding from it: the round stays as long as planned.
        """
        speed = self.speeds[client]
        left_s = round_.deadline_s / (1 + self.context.slack) * (1 - TOLERANCE) - speed.link_s
        if round_.rate is None:
            return left_s
        samples = self.local_steps * round_.batches[client]
        return min(left_s, round_.rate * samples / speed.samples_per_s)

    def _missed(self, round_: LayeredRound) -> np.ndarray:
        """The chance, for each layer, that nobody reaches it in its first step.

        Differs: Lemma 1 has equal layers and the rate T/m for all, which is a bound where batches were
        rounded. This is exact for what the clients got and what the layers cost. It makes the mean
        unbiased where all rates are equal; those with small batches reach the first layers more often.
        """
        depth = self.context.model.depth
        window_s = np.array([self._window_s(client, round_) for client in round_.batches])
        speeds = np.array([self.speeds[client].samples_per_s for client in round_.batches])
        step_s = depth * np.array(list(round_.batches.values())) / speeds
        return missed_chances_of_model(self.context.model, step_s, window_s)

    # A round ends

    def _warm_up_over(self, at: float) -> Commands:
        """End a warm-up if all are there, or if time is up and one is; others go by their deadline."""
        if self._running is not None:
            return ()
        if self.books.open and not (self._overdue and self._arrived):
            if self._overdue and self._give_up_s is not None:
                return (SetTimer(END, max(self._give_up_s, at)),)
            return ()
        return self._end(at) if self._arrived else self._begin(at)

    def _end(self, at: float) -> Iterator[Command]:
        yield CancelTimer(END)
        for task, given in list(self.books.open.items()):
            yield Cancel(given.command.client, task, "late")
            self._was_late(given.command.client, at)
        self._usual = None
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
        chances, cap = self._chances, self._averaging.cap
        if chances is not None and cap > 0 and bool((chances > cap).any()):
            self._capped += int((chances > cap).sum())
            yield Note(
                f"the chance that nobody reaches a layer was capped at {cap:g}, {self._capped} times "
                f"so far; deadlines are very short for these batches"
            )
        if chances is not None:
            yield from self._compare(chances)
        missed = None if chances is None or not self._arrived else np.minimum(chances, cap).tolist()
        yield Aggregate(
            tuple(update.task for update in self._arrived),
            tuple(self._weight(update.client) for update in self._arrived),
            missed=None if missed is None else tuple(missed),
        )
        self._arrived, self._chances, self._running = [], None, None
        yield from self._begin(at)

    def _compare(self, chances: np.ndarray) -> Iterator[Command]:
        """Look at whether layers are reached and missed as chance would have it; until it is clear."""
        if not self._believes:
            return
        depth = max((update.result.depth for update in self._arrived), default=0)
        reached = np.arange(len(chances)) >= len(chances) - depth
        always, never = self._surprise
        always[:] = np.where(reached, always + chances, -np.inf)
        never[:] = np.where(reached, -np.inf, never + 1 - chances)
        if max(always.max(), never.max()) > EVIDENCE:
            self._believes, self.steady = False, True
            what = "missed" if always.max() > EVIDENCE else "reached"
            yield Note(f"no layer is {what} by chance: times are taken to be steady from now on")

    def _weight(self, client: int) -> float:
        return float(self.books.clients.samples(client)) if self._averaging.weigh == "samples" else 1.0

    # What is known

    def _learn(self, client: int, rates: Rates) -> None:
        size = min(self._batch[client], self.books.clients.held(client))
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

    def _came_to_nothing(self, client: int) -> None:
        """A client got through no layer, or failed. Again and again: it is not what it was."""
        self._silent[client] += 1
        if self._silent[client] >= SILENT:
            del self._silent[client]
            self.speeds.pop(client, None)

    def _was_late(self, client: int, at: float) -> None:
        """Guess the speed of a client that has not sent anything in time: the best it can be."""
        old, round_ = self.speeds.get(client), self._running
        if round_ is not None and old is not None and client in round_.batches:
            # It stopped computing in time, so it is the link.
            up_s = max(2 * old.up_s, 0.05 * round_.deadline_s)
            self.speeds[client] = replace(old, up_s=min(up_s, round_.deadline_s), guessed=True)
        elif at > self._asked_at:
            self.speeds[client] = self._as_usual(client, at - self._asked_at)
        else:
            return
        if self._usual is not None and old is not None and not old.guessed:
            self._usual.take_out(_numbers(old))

    def _as_usual(self, client: int, seconds: float) -> Speed:
        """As clients are that have delivered, but too slow for one batch in so many seconds."""
        size = min(self._batch[client], self.books.clients.held(client))
        most = self.context.model.depth * size / seconds
        if self._usual is None:
            self._usual = Medians(_numbers(one) for one in self.speeds.values() if not one.guessed)
        samples_per_s, down_s, up_s = self._usual.values or (most, 0.0, 0.0)
        return Speed(min(most, samples_per_s), down_s, up_s, guessed=True)


def _numbers(speed: Speed) -> tuple[float, float, float]:
    return speed.samples_per_s, speed.down_s, speed.up_s
