"""FedBuff (Nguyen et al., AISTATS 2022): clients train all the time, the server buffers K updates.

Algorithm 1: a fixed number of clients train at any time; a client that is done is replaced by
another at once. When K updates are in the buffer, the model takes a step along their sum over K,
each scaled by its staleness. Updates may come from models that are several versions old.
"""

from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import Aggregate
from fedpace.core.errors import Checked, Count, Natural, Positive
from fedpace.core.events import Arrived
from fedpace.core.policy import Commands, Context
from fedpace.policies.shared.asynchronous import Asynchronous
from fedpace.policies.shared.staleness import POLYNOMIAL, Staleness


@dataclass(frozen=True, slots=True)
class FedBuffSettings(Checked):
    concurrency: Annotated[Count | None, "clients that train at any time; default: all"] = None
    k: Annotated[Count | None, "updates in a full buffer; default: half of concurrency"] = None
    staleness: Annotated[Staleness, "what an old update counts"] = POLYNOMIAL
    max_staleness: Annotated[Natural | None, "drop updates older than this; default: none is"] = None
    server_lr: Annotated[Positive | None, "server learning rate; default: the run's"] = None
    epochs: Annotated[Count | None, "local epochs; default: the run's"] = None


class FedBuff(Asynchronous[FedBuffSettings]):
    """Asynchronous: a step of the model whenever K updates are in the buffer, stale ones included."""

    Settings = FedBuffSettings

    def __init__(self, settings: FedBuffSettings, context: Context) -> None:
        super().__init__(
            settings, context, settings.concurrency, settings.epochs, settings.max_staleness
        )
        self._k = settings.k or (self.concurrency + 1) // 2
        self._buffer: list[Arrived] = []

    def take(self, update: Arrived, staleness: int) -> Commands:
        """Algorithm 1, lines 7 to 13: the sum over K, each update scaled by s(staleness)."""
        self._buffer.append(update)
        if len(self._buffer) < self._k:
            return ()
        version, buffer, self._buffer = self.version, self._buffer, []
        ages = [version - one.version for one in buffer]
        scaled = {age: self.settings.staleness(age) / self._k for age in set(ages)}
        tasks, weights = tuple(one.task for one in buffer), tuple(scaled[age] for age in ages)
        return (Aggregate(tasks, weights, rule="sum", lr=self.settings.server_lr),)
