"""Synchronous rounds of tau local steps with a batch size for every client, within budgets.

What DYNAMITE and the policies that it is compared with have in common: every round everybody takes as
many steps, with batches that the policy chooses; the model becomes the mean of all updates, weighted by
the samples that clients have seen. A round that time or money do not allow any more is given fewer
steps, and if not even one fits, the run ends.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from fedpace.core.budget import Ledger
from fedpace.core.commands import Aggregate, Command, Finish, Measure, Note, Train, Work
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Event, Failed, Joined, Left, Measured, Started
from fedpace.core.policy import Commands, Context, Policy
from fedpace.core.roster import Roster
from fedpace.core.rounding import TOLERANCE
from fedpace.policies.answers import Estimate, by_client

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Device:
    """What is known of a client. samples: seen so far; most: what it can hold."""

    samples: int
    most: int
    samples_per_s: float | None = None
    link_s: float = 0.0

    @property
    def held(self) -> int:
        return min(self.samples, self.most)


@dataclass(frozen=True, slots=True)
class Round:
    """tau steps for all; client -> samples of a step."""

    tau: int
    batches: Mapping[int, int]


class Stepped(Policy[S]):
    """One round after the other; `next_round` says what is given out, or that it is over.

    measure: what is asked about every round's updates; `learn` is told.
    """

    def __init__(self, settings: S, context: Context, measure: tuple[Estimate, ...] = ()) -> None:
        super().__init__(settings, context)
        if context.steps is None and context.epochs != 1:
            raise ConfigError(
                f"epochs is {context.epochs}, but this policy counts local steps; set train.steps"
            )
        self.tau = context.steps or 1
        self.devices: dict[int, Device] = {}
        self.notes: list[Note] = []
        """Said before the next round begins."""
        self.ledger = Ledger(context.budget)
        self.version = 0
        self._roster = Roster()
        self._measure = measure
        self._started = self._over = False
        self._open: dict[int, int] = {}
        self._work: dict[int, Work] = {}
        self._arrived: list[Arrived] = []
        self._requests: dict[int, Estimate] = {}
        self._answers: dict[Estimate, dict[int, float]] = {}

    def next_round(self, clients: list[int], at: float) -> Round | Finish:
        """What is given out now."""
        raise NotImplementedError

    def learn(self, answers: Mapping[Estimate, Mapping[int, float]]) -> None:
        """Hear what was measured: by client, of those whose number is finite."""

    # What happens

    def handle(self, event: Event) -> Commands:
        self.ledger.hear(event)
        for command in super().handle(event):
            self.ledger.pay(command)
            yield command

    def on_started(self, event: Started) -> Commands:
        self._started = True
        return self._begin(event.at)

    def on_joined(self, event: Joined) -> Commands:
        self._roster.join(event.client, event.samples)
        known = self.devices.get(event.client)
        most = event.most or event.samples
        self.devices[event.client] = (
            Device(event.samples, most)
            if known is None
            else Device(max(event.samples, known.samples), most, known.samples_per_s, known.link_s)
        )
        idle = not self._open and not self._arrived
        return self._begin(event.at) if self._started and idle and not self._over else ()

    def on_left(self, event: Left) -> Commands:
        self._roster.leave(event.client)
        return ()

    def on_arrived(self, event: Arrived) -> Commands:
        del self._open[event.client]
        self._arrived.append(event)
        self._observe(event)
        return self._end_or_wait(event.at)

    def on_failed(self, event: Failed) -> Commands:
        del self._open[event.client]
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
        clients = self._roster.online
        if not clients:
            return
        decided = self.next_round(clients, at)
        if isinstance(decided, Round):
            decided = self._trimmed(decided, at)
        yield from self.notes
        self.notes.clear()
        if isinstance(decided, Finish):
            self._over = True
            yield decided
            return
        for client in clients:
            self._open[client] = self.new_task()
            self._work[client] = Work(
                decided.batches[client],
                steps=decided.tau,
                estimate=("gradient" if "spread" in self._measure else "numbers")
                if self._measure
                else None,
            )
            yield Train(client, self._open[client], self.version, self._work[client])

    def _trimmed(self, round_: Round, at: float) -> Round | Finish:
        """With as many steps as time and money allow."""
        budget = self.context.budget
        step_money = sum(budget.of(client) * size for client, size in round_.batches.items())
        money_left = self.ledger.left - budget.round_cost
        tau = round_.tau
        if money_left < 0 or step_money * tau > money_left * (1 + TOLERANCE):
            tau = int(money_left * (1 + TOLERANCE) / step_money) if money_left > 0 else 0
            if tau < 1:
                return Finish(f"the money is spent: {self.ledger.left:.6g} is left, a round costs more")
        if budget.time_s is not None:
            left_s = (budget.time_s - at) / (1 + self.context.slack)
            for client, size in round_.batches.items():
                device = self.devices[client]
                if device.samples_per_s is not None:
                    fit = (left_s - device.link_s) * device.samples_per_s / size * (1 + TOLERANCE)
                    tau = min(tau, int(max(fit, 0.0)))
            if tau < 1:
                return Finish(f"the time is over: {left_s:.6g} s are left, a round takes longer")
        if tau < round_.tau:
            self.notes.append(Note(f"{tau} of {round_.tau} steps: that is what the budgets allow"))
        return Round(tau, round_.batches)

    def _end_or_wait(self, at: float) -> Commands:
        if self._open:
            return ()
        return self._end(at) if self._arrived else self._begin(at)

    def _end(self, at: float) -> Iterator[Command]:
        if not self._measure:
            yield from self._aggregate(at)
            return
        tasks = tuple(update.task for update in self._arrived)
        for number, what in enumerate(self._measure, start=1):
            self._requests[number] = what
            yield Measure(number, what, tasks, self._weights())

    def _aggregate(self, at: float) -> Iterator[Command]:
        yield Aggregate(tuple(update.task for update in self._arrived), self._weights())
        self.version += 1
        self._arrived = []
        yield from self._begin(at)

    def _weights(self) -> tuple[float, ...]:
        return tuple(float(self.devices[update.client].samples) for update in self._arrived)

    def _observe(self, event: Arrived) -> None:
        known, rates = self.devices[event.client], event.rates
        samples = event.seen or known.samples
        size = min(self._work[event.client].batch_size, min(samples, known.most))
        self.devices[event.client] = Device(
            samples, known.most, size / max(rates.batch_s, 1e-12), rates.down_s + rates.up_s
        )
