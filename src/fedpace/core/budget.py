"""Limits of a run in seconds and in money, and the ledger that counts the money.

Money is charged when work is given, for every sample that a task can go through at most, and for every
round: a new version of the global model, with updates in it or without. What a task did not use is
given back when its update arrives: it was stopped, or batches were short at the end of an epoch. Work
that fails or is cancelled stays paid, since nobody knows how far it got. A probe is paid when it is
sent, and counts towards the work that follows. A client that goes on after its probe is paid for what
it can have done when its work is given; if it is cancelled instead, the rest was its own. What was
given out at the very time at which the run ends was never begun, and is given back.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import GLOBAL, TOLERANCE, Aggregate, Blend, Cancel, Command, Probe, Train
from fedpace.core.errors import Checked, ConfigError, NonNegative, Positive
from fedpace.core.events import Arrived, Event, Failed, Joined, Profiled


@dataclass(frozen=True, slots=True)
class Budget(Checked):
    """Limits of a run, and what things cost. None: no limit."""

    time_s: Annotated[Positive | None, "seconds of the run's clock that the run may take"] = None
    money: Annotated[Positive | None, "what the run may cost, in any unit"] = None
    sample_cost: Annotated[
        tuple[NonNegative, ...], "of each sample that is trained on: one number, or one a client"
    ] = (0.0,)
    round_cost: Annotated[NonNegative, "of each round (new version of the global model)"] = 0.0

    def _check_rest(self) -> None:
        if not self.sample_cost:
            raise ConfigError("sample_cost is empty; give one number, or one a client")
        if self.money is not None and not self.charges:
            raise ConfigError(
                f"money is {self.money:g}, but nothing has a price; set sample_cost or round_cost"
            )

    @property
    def charges(self) -> bool:
        """True if anything costs money."""
        return self.round_cost > 0 or any(self.sample_cost)

    def check(self, clients: int) -> None:
        """Refuse costs that are for another number of clients."""
        if len(self.sample_cost) not in (1, clients):
            raise ConfigError(
                f"budget.sample_cost has {len(self.sample_cost)} numbers, but there are {clients} "
                f"clients; give one, or {clients}"
            )

    def of(self, client: int) -> float:
        """Price of one sample with this client."""
        return self.sample_cost[client if len(self.sample_cost) > 1 else 0]


@dataclass(slots=True)
class _Task:
    """An open task. paid: in all; last: for the last command about it, which was given at `at`.

    going_on: the probe after which its client trains on; profiled: its answer.
    """

    paid: float
    last: float
    at: float
    going_on: Probe | None = None
    profiled: Profiled | None = None


class Ledger:
    """Money spent so far. Ask `affords` before a command, then `pay`; tell it of every event.

    What it says follows from a journal's events and commands alone.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.charges = budget.charges
        self.spent = 0.0
        self._now = 0.0
        self._holds: dict[int, int] = {}
        """Client -> the samples that it holds at most."""
        self._open: dict[int, _Task] = {}

    @property
    def left(self) -> float:
        """Infinite where no limit is set."""
        return math.inf if self.budget.money is None else self.budget.money - self.spent

    def price(self, command: Command) -> float:
        """Price of carrying out the command now. Clients that never joined are given nothing."""
        match command:
            case Probe(client=client, batch_size=size) if client in self._holds:
                return self.budget.of(client) * min(size, self._holds[client])
            case Train(client=client, task=task) if client in self._holds:
                before = self._open.get(task)
                samples, paid = self._samples(command), 0.0
                if before is not None:
                    samples, paid = max(samples, self._since_probe(before)), before.paid
                return max(self.budget.of(client) * samples - paid, 0.0)
            # Of FedAT's two steps the blend makes the model that everybody gets: a tier's is none.
            case Aggregate(slot=slot) | Blend(slot=slot):
                return self.budget.round_cost if slot == GLOBAL else 0.0
        return 0.0

    def affords(self, command: Command) -> bool:
        limit = self.budget.money
        if limit is None:
            return True
        price = self.price(command)
        return not price or self.spent + price <= limit * (1 + TOLERANCE)

    def pay(self, command: Command) -> None:
        if not self.charges:
            return
        price = self.price(command)
        self.spent += price
        match command:
            case Probe(task=task):
                going_on = command if command.go_on else None
                self._open[task] = _Task(price, price, self._now, going_on)
            case Train(task=task):
                before = self._open.get(task)
                paid = price if before is None else before.paid + price
                self._open[task] = _Task(paid, price, self._now)
            case Cancel(task=task):
                self._open.pop(task, None)

    def hear(self, event: Event) -> None:
        """Learn what clients hold and have done, and give back what an update did not use."""
        if not self.charges:
            return
        self._now = event.at
        match event:
            case Joined(client=client):
                self._holds[client] = event.most or event.samples
            case Profiled(task=number):
                if (task := self._open.get(number)) is not None:
                    task.profiled = event
            case Failed(task=number):
                self._open.pop(number, None)
            case Arrived(client=client, result=result):
                task = self._open.pop(event.task, None)
                if task is not None and result.trained is not None:
                    unused = task.paid - self.budget.of(client) * result.trained
                    self._give_back(max(unused, 0.0))

    def end(self, at: float) -> None:
        """The run is over."""
        for task in self._open.values():
            if task.at == at:
                self._give_back(task.last)
        self._open.clear()

    def _give_back(self, money: float) -> None:
        # Sums of many prices can miss each other by a rounding.
        self.spent = max(self.spent - money, 0.0)

    def _samples(self, command: Train) -> int:
        """Samples that the work goes through at most."""
        work, held = command.work, self._holds[command.client]
        if work.steps is not None:
            return work.steps * min(work.batch_size, held)
        return (work.epochs or 1) * held

    def _since_probe(self, task: _Task) -> int:
        """Samples that a client can have gone through by the time that work given now reaches it."""
        probe, profiled = task.going_on, task.profiled
        if probe is None or profiled is None or not profiled.rates.batch_s > 0:
            return 0
        rates, held = profiled.rates, self._holds[probe.client]
        # Its first batch was over one latency before the profile came; work takes one to get there.
        batches = 1 + (self._now - profiled.at + 2 * rates.latency_s) / rates.batch_s
        most = math.inf if probe.max_epochs is None else probe.max_epochs * held
        return int(min(batches * min(probe.batch_size, held) * (1 + TOLERANCE), most))
