"""FedBuff (Nguyen et al., AISTATS 2022): clients train all the time, the server buffers K updates.

Algorithm 1: a fixed number of clients train at any time; a client that is done is replaced by
another at once. When K updates are in the buffer, the model takes a step along their sum over K,
each scaled by its staleness. Updates may come from models that are several versions old.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import Aggregate, Command, Drop, Train, Work
from fedpace.core.errors import ConfigError
from fedpace.core.events import Arrived, Failed, Joined, Left, Started
from fedpace.core.policy import Commands, Context, Policy
from fedpace.core.roster import Roster
from fedpace.policies.checks import at_least, resolve
from fedpace.policies.staleness import polynomial


@dataclass(frozen=True, slots=True)
class FedBuffSettings:
    concurrency: Annotated[int | None, "clients that train at any time; default: all"] = None
    k: Annotated[int | None, "updates in a full buffer; default: half of concurrency"] = None
    staleness_exponent: Annotated[float, "a in the factor (staleness + 1)^(-a)"] = 0.5
    max_staleness: Annotated[int | None, "drop updates older than this; default: none is"] = None
    server_lr: Annotated[float | None, "server learning rate; default: the run's"] = None
    epochs: Annotated[int | None, "local epochs; default: the run's"] = None

    def __post_init__(self) -> None:
        at_least("concurrency", self.concurrency, 1)
        at_least("k", self.k, 1)
        at_least("staleness_exponent", self.staleness_exponent, 0)
        at_least("max_staleness", self.max_staleness, 0)
        at_least("epochs", self.epochs, 1)
        if self.server_lr is not None and not self.server_lr > 0:
            raise ConfigError(f"server_lr is {self.server_lr}; set it above 0")


class FedBuff(Policy[FedBuffSettings]):
    """Asynchronous: a step of the model whenever K updates are in the buffer, stale ones included."""

    Settings = FedBuffSettings

    def __init__(self, settings: FedBuffSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._concurrency = resolve(
            "concurrency",
            settings.concurrency,
            context.clients,
            context.clients,
            "clients are in the fleet",
        )
        self._k = settings.k or (self._concurrency + 1) // 2
        self._roster = Roster()
        self._started = False
        self._training = self._draws = 0
        self._version = 0
        self._buffer: list[Arrived] = []

    def on_started(self, event: Started) -> Commands:
        self._started = True
        return self._fill()

    def on_joined(self, event: Joined) -> Commands:
        self._roster.join(event.client)
        return self._fill() if self._started else ()

    def on_left(self, event: Left) -> Commands:
        self._roster.leave(event.client)
        return ()

    def on_failed(self, event: Failed) -> Commands:
        self._done(event.client)
        return self._fill()

    def on_arrived(self, event: Arrived) -> Iterator[Command]:
        self._done(event.client)
        most = self.settings.max_staleness
        if most is not None and self._staleness(event) > most:
            yield Drop(event.task, f"staleness {self._staleness(event)} is over {most}")
        else:
            self._buffer.append(event)
        if len(self._buffer) == self._k:
            yield from self._step()
        yield from self._fill()

    def _staleness(self, update: Arrived) -> int:
        return self._version - update.version

    def _step(self) -> Iterator[Command]:
        """Algorithm 1, lines 7 to 13: the sum over K, each update scaled by s(staleness)."""
        exponent = self.settings.staleness_exponent
        yield Aggregate(
            tuple(update.task for update in self._buffer),
            tuple(polynomial(self._staleness(update), exponent) / self._k for update in self._buffer),
            rule="sum",
            lr=self.settings.server_lr,
        )
        self._version += 1
        self._buffer = []

    def _done(self, client: int) -> None:
        self._training -= 1
        self._roster.release(client)

    def _fill(self) -> Iterator[Command]:
        """Give work to free clients until `concurrency` train."""
        wanted = self._concurrency - self._training
        if wanted < 1 or not self._roster.idle:
            return
        self._draws += 1
        work = Work(self.context.batch_size, epochs=self.settings.epochs or self.context.epochs)
        for client in self._roster.draw(wanted, self.generator("sample", self._draws)):
            self._training += 1
            yield Train(client, self.new_task(), self._version, work)
