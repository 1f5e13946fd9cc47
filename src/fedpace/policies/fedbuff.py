"""FedBuff (Nguyen et al., AISTATS 2022): clients train all the time, the server buffers K updates.

Algorithm 1: a fixed number of clients train at any time; a client that is done is replaced by
another at once. When K updates are in the buffer, the model takes a step along their sum over K,
each scaled by its staleness. Updates may come from models that are several versions old.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import Aggregate, Command, Drop
from fedpace.core.errors import Checked, Count, Natural, Positive
from fedpace.core.events import Arrived, Failed, Joined, Started
from fedpace.core.policy import Commands, Context, Policy
from fedpace.policies.shared.crew import Crew
from fedpace.policies.shared.staleness import POLYNOMIAL, Staleness


@dataclass(frozen=True, slots=True)
class FedBuffSettings(Checked):
    concurrency: Annotated[Count | None, "clients that train at any time; default: all"] = None
    k: Annotated[Count | None, "updates in a full buffer; default: half of concurrency"] = None
    staleness: Annotated[Staleness, "what an old update counts"] = POLYNOMIAL
    max_staleness: Annotated[Natural | None, "drop updates older than this; default: none is"] = None
    server_lr: Annotated[Positive | None, "server learning rate; default: the run's"] = None
    epochs: Annotated[Count | None, "local epochs; default: the run's"] = None


class FedBuff(Policy[FedBuffSettings]):
    """Asynchronous: a step of the model whenever K updates are in the buffer, stale ones included."""

    Settings = FedBuffSettings

    def __init__(self, settings: FedBuffSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._crew = Crew(self, settings.concurrency, context.work(settings.epochs))
        self._k = settings.k or (self._crew.concurrency + 1) // 2
        self._buffer: list[Arrived] = []

    def on_started(self, event: Started) -> Commands:
        return self._crew.fill()

    def on_joined(self, event: Joined) -> Commands:
        return self._crew.fill()

    def on_failed(self, event: Failed) -> Commands:
        return self._crew.fill()

    def on_arrived(self, event: Arrived) -> Iterator[Command]:
        staleness, most = self.version - event.version, self.settings.max_staleness
        if most is not None and staleness > most:
            yield Drop(event.task, f"staleness {staleness} is over {most}")
        else:
            self._buffer.append(event)
            if len(self._buffer) >= self._k:
                yield self._step()
        yield from self._crew.fill()

    def _step(self) -> Aggregate:
        """Algorithm 1, lines 7 to 13: the sum over K, each update scaled by s(staleness)."""
        version = self.version
        ages = [version - update.version for update in self._buffer]
        scaled = {age: self.settings.staleness(age) / self._k for age in set(ages)}
        tasks = tuple(update.task for update in self._buffer)
        self._buffer = []
        return Aggregate(
            tasks, tuple(scaled[age] for age in ages), rule="sum", lr=self.settings.server_lr
        )
