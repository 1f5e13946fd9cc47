"""Synchronous rounds of tau local steps with a batch size for every client, within budgets.

What DYNAMITE and the policies that it is compared with have in common: every round everybody takes as
many steps, with batches that the policy chooses; the model becomes the mean of all updates, weighted by
the samples that clients have seen. A round that time or money do not allow any more is given fewer
steps, and if not even one fits, the run ends.

What a round takes is foretold from what clients measured, and from how much longer rounds took than
foretold: of many clients that need about as long, the unluckiest ends a round.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, TypeVar

from fedpace.core.commands import TOLERANCE, Aggregate, Command, Finish, Measure, Note, Train, Work
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Joined, Measured, Started
from fedpace.core.policy import Commands, Context, Policy
from fedpace.policies.shared.answers import Estimate, by_client

S = TypeVar("S")

_ROUNDS, _SURE = 10, 0.8
"""Of so many rounds so large a part took no longer: then it is said that one fits."""


@dataclass(frozen=True, slots=True)
class Device:
    """Measured speed and data of a client.

    samples: seen so far; most: what it can hold; sample_s: a step takes so long for each sample, None:
    not known yet; link_s: what transfers take; extra_steps, extra_link_s: a round in which clients
    estimate takes the time of so many steps and so long on the link besides.
    """

    samples: int
    most: int
    sample_s: float | None = None
    link_s: float = 0.0
    extra_steps: float = 0.0
    extra_link_s: float = 0.0

    @property
    def held(self) -> int:
        return min(self.samples, self.most)

    @property
    def samples_per_s(self) -> float | None:
        return None if self.sample_s is None else 1 / self.sample_s

    def on_average(self, share: float) -> "Device":
        """This device with estimates averaged over rounds, of which only a share has any."""
        return replace(
            self, extra_steps=share * self.extra_steps, extra_link_s=share * self.extra_link_s
        )

    def round_s(self, tau: float, size: int) -> float | None:
        """Seconds of a round with estimates; None: its speed is not known."""
        if self.sample_s is None:
            return None
        return (tau + self.extra_steps) * size * self.sample_s + self.link_s + self.extra_link_s

    def steps_in(self, seconds: float, size: int) -> float:
        """Steps of such a round that fit; infinite where its speed is not known."""
        if self.sample_s is None:
            return math.inf
        left_s = seconds - self.link_s - self.extra_link_s
        return left_s / (size * self.sample_s) - self.extra_steps

    def trained(self, sample_s: float, link_s: float) -> "Device":
        """This device after a round: the mean of what was known and what it has shown."""
        if self.sample_s is None:
            return replace(self, sample_s=sample_s, link_s=link_s)
        return replace(self, sample_s=(self.sample_s + sample_s) / 2, link_s=(self.link_s + link_s) / 2)

    def estimated(self, extra_steps: float, extra_link_s: float) -> "Device":
        """This device after estimates; the first time there is nothing to take the mean with."""
        first = not self.extra_steps and not self.extra_link_s
        return replace(
            self,
            extra_steps=extra_steps if first else (self.extra_steps + extra_steps) / 2,
            extra_link_s=extra_link_s if first else (self.extra_link_s + extra_link_s) / 2,
        )


@dataclass(frozen=True, slots=True)
class SteppedRound:
    """tau steps for all; client -> samples of a step."""

    tau: int
    batches: Mapping[int, int]


class Stepped(Policy[S]):
    """One round after the other; `next_round` says what is given out, or that it is over.

    What it `measures` is asked about the updates of rounds in which it `asks`; `learn` is told.
    """

    plans_with_budget = True

    @classmethod
    def measures(cls, settings: S) -> tuple[Estimate, ...]:
        return ()

    def __init__(self, settings: S, context: Context) -> None:
        super().__init__(settings, context)
        if context.steps is None and context.epochs != 1:
            raise ConfigError(
                f"epochs is {context.epochs}, but this policy counts local steps; set train.steps"
            )
        self.tau = context.steps or 1
        self.devices: dict[int, Device] = {}
        self.notes: list[Note] = []
        """Said before the next round begins."""
        self._measure = self.measures(settings)
        self._over = self._asked = False
        self._began = 0.0
        self._foretold_s: float | None = None
        self._later: deque[float] = deque(maxlen=_ROUNDS)
        """By what factor the last rounds took longer than foretold."""
        self._work: dict[int, Work] = {}
        self._arrived: list[Arrived] = []
        self._requests: dict[int, Estimate] = {}
        self._answers: dict[Estimate, dict[int, float]] = {}

    def next_round(self, clients: list[int], at: float) -> SteppedRound | Finish:
        """The round to begin now, or the end."""
        raise NotImplementedError

    def asks(self) -> bool:
        """True if clients estimate in the next round."""
        return bool(self._measure)

    def learn(self, answers: Mapping[Estimate, Mapping[int, float]]) -> None:
        """Hear what was measured: by client, of those whose number is finite."""

    def left_s(self, at: float, sure: bool = False) -> float:
        """Seconds left, counted as rounds are foretold. sure: so that one round fits."""
        limit, later = self.context.budget.time_s, sorted(self._later) or [1.0]
        left = math.inf if limit is None else max(limit - at, 0.0)
        factor = later[int(_SURE * (len(later) - 1))] if sure else median(later)
        return left / (1 + self.context.slack) / factor

    @property
    def sizes(self) -> dict[int, int]:
        """Client -> the batch that it was given last."""
        return {client: work.batch_size for client, work in self._work.items()}

    # What happens

    def on_started(self, event: Started) -> Commands:
        return self._begin(event.at)

    def on_joined(self, event: Joined) -> Commands:
        known = self.devices.get(event.client)
        most = event.most or event.samples
        self.devices[event.client] = (
            Device(event.samples, most)
            if known is None
            else replace(known, samples=max(event.samples, known.samples), most=most)
        )
        idle = not self.books.open and not self._arrived
        return self._begin(event.at) if self.books.started and idle and not self._over else ()

    def on_arrived(self, event: Arrived) -> Commands:
        self._arrived.append(event)
        self._observe(event)
        return self._end_or_wait(event.at)

    def on_failed(self, event: Failed) -> Commands:
        return self._end_or_wait(event.at)

    def on_measured(self, event: Measured) -> Commands:
        self._answers[self._requests.pop(event.request)] = by_client(self._arrived, event)
        if self._requests:
            return ()
        self.learn(self._answers)
        self._answers = {}
        return self._aggregate(event.at)

    # A round

    def _begin(self, at: float) -> Iterator[Command]:
        clients = self.books.clients.online
        if not clients:
            return
        self._asked = self.asks()
        decided = self.next_round(clients, at)
        if isinstance(decided, SteppedRound):
            decided = self._trimmed(decided, at)
        if isinstance(decided, SteppedRound):
            decided = self._evened(decided)
        yield from self.notes
        self.notes.clear()
        if isinstance(decided, Finish):
            self._over = True
            yield decided
            return
        taken = [
            self._device(client).round_s(decided.tau, decided.batches[client]) for client in clients
        ]
        known = [seconds for seconds in taken if seconds is not None]
        self._began, self._foretold_s = at, max(known) if len(known) == len(clients) else None
        asked: Literal["gradient", "numbers"] = "gradient" if "spread" in self._measure else "numbers"
        works = {
            size: Work(size, steps=decided.tau, estimate=asked if self._asked else None)
            for size in set(decided.batches.values())
        }
        for client in clients:
            self._work[client] = works[decided.batches[client]]
            yield Train(client, self.new_task(), self.version, self._work[client])

    def _trimmed(self, round_: SteppedRound, at: float) -> SteppedRound | Finish:
        """The round with as many steps as time and money allow."""
        budget = self.context.budget
        step_money = sum(budget.of(client) * size for client, size in round_.batches.items())
        money_left = self.books.ledger.left - budget.round_cost
        tau = round_.tau
        if money_left < 0 or step_money * tau > money_left * (1 + TOLERANCE):
            tau = int(money_left * (1 + TOLERANCE) / step_money) if money_left > 0 else 0
            if tau < 1:
                return Finish(
                    f"the money is spent: {self.books.ledger.left:.6g} is left, a round costs more"
                )
        if budget.time_s is not None:
            if self._steps_in(self.left_s(at), round_) < 1:
                left_s = budget.time_s - at
                return Finish(f"the time is over: {left_s:.6g} s are left, a round takes longer")
            # A step that may come too late is better than none.
            tau = min(tau, max(self._steps_in(self.left_s(at, sure=True), round_), 1))
        if tau < round_.tau:
            self.notes.append(Note(f"{tau} of {round_.tau} steps: that is what the budgets allow"))
        return SteppedRound(tau, round_.batches)

    def _steps_in(self, seconds: float, round_: SteppedRound) -> int:
        """Steps of the round that everybody has time for, of those whose speed is known."""
        fits = (self._device(client).steps_in(seconds, size) for client, size in round_.batches.items())
        return int(min(max(min(fits) * (1 + TOLERANCE), 0.0), round_.tau))

    def _device(self, client: int) -> Device:
        """As it is in this round."""
        return self.devices[client] if self._asked else self.devices[client].on_average(0.0)

    def _evened(self, round_: SteppedRound) -> SteppedRound:
        """The round with batches of equal size where a client goes through more than it holds.

        The rest that ends an epoch would otherwise be a step as large as any, of a few samples.
        """
        batches = dict(round_.batches)
        for client, size in batches.items():
            held = self.devices[client].held
            if round_.tau * size > held:
                batches[client] = math.ceil(held / math.ceil(held / size))
        return SteppedRound(round_.tau, batches)

    def _end_or_wait(self, at: float) -> Commands:
        if self.books.open:
            return ()
        if self._foretold_s and self._arrived:
            self._later.append(max((at - self._began) / self._foretold_s, 1.0))
        return self._end(at) if self._arrived else self._begin(at)

    def _end(self, at: float) -> Iterator[Command]:
        if not self._asked:
            yield from self._aggregate(at)
            return
        tasks = tuple(update.task for update in self._arrived)
        for number, what in enumerate(self._measure, start=1):
            self._requests[number] = what
            yield Measure(number, what, tasks, self._weights())

    def _aggregate(self, at: float) -> Iterator[Command]:
        yield Aggregate(tuple(update.task for update in self._arrived), self._weights())
        self._arrived = []
        yield from self._begin(at)

    def _weights(self) -> tuple[float, ...]:
        return tuple(float(self.devices[update.client].samples) for update in self._arrived)

    def _observe(self, event: Arrived) -> None:
        known, rates = self.devices[event.client], event.rates
        known = replace(known, samples=event.result.seen or known.samples)
        work, batch_s = self._work[event.client], max(rates.batch_s, 1e-12)
        link_s = rates.down_s + rates.up_s
        known = known.trained(batch_s / min(work.batch_size, known.held), link_s)
        if work.estimate is not None:
            rest_s = max(event.at - self._began - link_s - event.result.steps * batch_s, 0.0)
            sent_s = rates.up_s - rates.latency_s if work.estimate == "gradient" else 0.0
            sent_s = min(sent_s, rest_s)
            known = known.estimated((rest_s - sent_s) / batch_s, sent_s)
        self.devices[event.client] = known
