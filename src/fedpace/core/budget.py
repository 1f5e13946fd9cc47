"""What a run may take, in seconds and in money, and the ledger that counts the money.

Money is charged when work is given: for every sample that a task can go through at most, and for
every round. What a task did not use, because it was stopped, is given back when its update arrives;
work that fails or is cancelled is paid for, since nobody knows how far it got. A probe is paid for
when it is sent, and counts towards the work that follows; what a client trains beyond its work while
it waits is its own.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import Aggregate, Blend, Command, Probe, Train
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Event, Joined
from fedpace.core.rounding import TOLERANCE


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of a run, and what things cost. None: no limit."""

    time_s: Annotated[float | None, "seconds that the run may take"] = None
    money: Annotated[float | None, "what the run may cost"] = None
    sample_cost: Annotated[
        tuple[float, ...], "for each sample that is trained on: one number, or one a client"
    ] = (0.0,)
    round_cost: Annotated[float, "for each round (aggregation of updates)"] = 0.0

    def __post_init__(self) -> None:
        for name in ("time_s", "money"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"budget.{name} is {value}; set it above 0")
        if not self.sample_cost:
            raise ConfigError("budget.sample_cost is empty; give one number, or one a client")
        for cost in (*self.sample_cost, self.round_cost):
            if not 0 <= cost < math.inf:
                raise ConfigError(f"budget has a cost of {cost}; costs are finite, and 0 or more")
        if self.money is not None and not self.charges:
            raise ConfigError(
                f"budget.money is {self.money}, but nothing has a price; set sample_cost or round_cost"
            )

    @property
    def charges(self) -> bool:
        """Whether anything costs money."""
        return self.round_cost > 0 or any(self.sample_cost)

    def check(self, clients: int) -> None:
        """Refuse costs that are for another number of clients."""
        if len(self.sample_cost) not in (1, clients):
            raise ConfigError(
                f"budget.sample_cost has {len(self.sample_cost)} numbers, but there are {clients} "
                f"clients; give one, or {clients}"
            )

    def of(self, client: int) -> float:
        """What one sample costs with this client."""
        return self.sample_cost[client if len(self.sample_cost) > 1 else 0]


class Ledger:
    """Money spent so far. Ask `price` before a command, then `pay`; tell it of every event.

    What it says follows from a journal's events and commands alone.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.spent = 0.0
        self._most: dict[int, int] = {}
        """Client -> the samples that it holds at most."""
        self._paid: dict[int, float] = {}
        """Task -> what was paid for it, until it ends."""

    @property
    def left(self) -> float:
        """Infinite where no limit is set."""
        return math.inf if self.budget.money is None else self.budget.money - self.spent

    def price(self, command: Command) -> float:
        """What carrying out the command costs now."""
        match command:
            case Probe(client=client, batch_size=size):
                return self.budget.of(client) * min(size, self._most.get(client, size))
            case Train(client=client, task=task, work=work):
                most = self._most.get(client, 0)
                if work.steps is not None:
                    samples = work.steps * (min(work.batch_size, most) if most else work.batch_size)
                else:
                    samples = (work.epochs or 1) * most
                return max(self.budget.of(client) * samples - self._paid.get(task, 0.0), 0.0)
            case Aggregate(tasks=tasks):
                return self.budget.round_cost if tasks else 0.0
            case Blend():
                return self.budget.round_cost
        return 0.0

    def affords(self, command: Command) -> bool:
        limit = self.budget.money
        return limit is None or self.spent + self.price(command) <= limit * (1 + TOLERANCE)

    def pay(self, command: Command) -> None:
        price = self.price(command)
        self.spent += price
        if isinstance(command, (Probe, Train)):
            self._paid[command.task] = self._paid.get(command.task, 0.0) + price

    def hear(self, event: Event) -> None:
        """Learn what clients hold, and give back what an update did not use."""
        if isinstance(event, Joined):
            self._most[event.client] = event.most or event.samples
        elif isinstance(event, Arrived):
            paid = self._paid.pop(event.task, 0.0)
            if event.trained is not None:
                self.spent -= max(paid - self.budget.of(event.client) * event.trained, 0.0)
