"""A scheduler: the model takes a step every few seconds; work is what fits in between.

It is told what happens (`on_*`) and answers with commands. There is no clock, socket or
tensor in it, so it runs in the simulator and over a network alike. What has happened so
far is in `self.books`.
"""

from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import Aggregate, SetTimer, Train, Work
from fedpace.core.errors import Checked, Count, Positive
from fedpace.core.events import Arrived, Rates, Started, Timer
from fedpace.core.policy import Commands, Context, Policy


@dataclass(frozen=True, slots=True)
class PacedSettings(Checked):
    """Keys of [policies.paced] in config.toml; `Checked` holds values to types."""

    seconds: Annotated[Positive, "time between two steps of the model"] = 10.0
    most: Annotated[Count, "batches that a client is given at most"] = 10


class Paced(Policy[PacedSettings]):
    """A step every `seconds`, made of all updates that have come since the last one."""

    Settings = PacedSettings

    def __init__(self, settings: PacedSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.rates: dict[int, Rates] = {}

    def on_started(self, event: Started) -> Commands:
        return self.step(event.at)

    def on_timer(self, event: Timer) -> Commands:
        return self.step(event.at)

    def on_arrived(self, event: Arrived) -> Commands:
        self.rates[event.client] = event.rates  # its update waits in the books
        return ()

    def step(self, now: float) -> Commands:
        """Use the updates that wait, then give work to all clients that have none."""
        clients, updates = self.books.clients, self.books.updates
        if updates:
            owners = [given.command.client for given in updates.values()]
            samples = tuple(float(clients.samples(client)) for client in owners)
            yield Aggregate(tuple(updates), samples)
        for client in clients.online:
            if self.books.task_of(client) is None:
                work = self.work_for(client)
                yield Train(client, self.new_task(), self.version, work)
        yield SetTimer("step", now + self.settings.seconds)

    def work_for(self, client: int) -> Work:
        """As many batches as fit between its transfers; one to learn its speed."""
        rates, steps = self.rates.get(client), 1
        if rates is not None:
            left = self.settings.seconds - rates.down_s - rates.up_s
            steps = min(max(int(left / rates.batch_s), 1), self.settings.most)
        return Work(self.context.batch_size, steps=steps)
