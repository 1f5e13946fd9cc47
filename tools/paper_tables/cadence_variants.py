"""Forms of the policy cadence that were tried and did worse, for the table of its parts."""

from dataclasses import replace

from fedpace.core.commands import Aggregate, Command
from fedpace.core.events import Arrived, Rates, Timer
from fedpace.core.policy import Commands, Context
from fedpace.planning.beats import BeatWork
from fedpace.policies.cadence import Cadence, CadenceSettings


class AtOnce(Cadence):
    """Who has sent its update gets work at once, from the model as it is, and waits for no beat."""

    def on_arrived(self, event: Arrived) -> Commands:
        found = list(super().on_arrived(event))
        soon = self._next_at - 0.5 * event.rates.batch_s
        if self._beat_s is not None and event.at < soon and self.books.clients.is_online(event.client):
            found += self._assign([event.client], event.at)
        return found


class Summed(Cadence):
    """A step is a sum: where few arrive it is short. On average it is as long as a mean's."""

    def __init__(self, settings: CadenceSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._usual: dict[int, float] = {}
        """What each client adds to a beat on average, by its last update."""

    def on_timer(self, event: Timer) -> Commands:
        yield from map(self._sum, super().on_timer(event))

    def _weight(self, update: Arrived) -> float:
        weight = super()._weight(update)
        self._usual[update.client] = weight / (self._version - update.version + 1)
        return weight

    def _sum(self, command: Command) -> Command:
        if not isinstance(command, Aggregate) or not command.tasks:
            return command
        usual = sum(self._usual.values())
        weights = tuple(weight / usual for weight in command.weights)
        return Aggregate(command.tasks, weights, rule="sum", slot=command.slot)


class ByBeats(Cadence):
    """An update counts by its beats, and not by its batches."""

    def _weight(self, update: Arrived) -> float:
        beats = self._version - update.version + 1
        return float(self._data(update) * beats**self._power)


class BySamples(Cadence):
    """An update counts by the samples that it has used, and not by its client's data."""

    def _data(self, update: Arrived) -> int:
        return update.result.samples


class ExactParts(Cadence):
    """Parts of batches have as many samples as fit, and are not halves and quarters."""

    def _fit(self, clients: list[int], at: float) -> list[BeatWork | None]:
        found = super()._fit(clients, at)
        return [self._exact(client, one, at) for client, one in zip(clients, found, strict=True)]

    def _exact(self, client: int, work: BeatWork | None, at: float) -> BeatWork | None:
        if work is None or work.size is None:
            return work
        rates = self._rates[client]
        room_s = work.due - at - rates.down_s - rates.up_s
        fitting = int(self._rates.whole(client) * room_s / rates.batch_s)
        return replace(work, size=max(fitting, work.size))


class LargeBatches(Cadence):
    """Fast clients do one large batch instead of several."""

    def _fit(self, clients: list[int], at: float) -> list[BeatWork | None]:
        found = super()._fit(clients, at)
        return [self._large(client, one) for client, one in zip(clients, found, strict=True)]

    def _large(self, client: int, work: BeatWork | None) -> BeatWork | None:
        if work is None or work.batches == 1 or self.books.task_of(client) is not None:
            return work
        samples = work.batches * self.context.batch_size
        return replace(work, batches=1, size=min(samples, self.books.clients.held(client)))


class EveryBeat(Cadence):
    """An adaptive optimiser takes every beat's mean as a step of its own."""

    @classmethod
    def takes_memory(cls, adaptive: bool) -> bool:
        return True

    def __init__(self, settings: CadenceSettings, context: Context) -> None:
        super().__init__(settings, replace(context, adaptive=False))


class SummedEveryBeat(EveryBeat, Summed):
    """The same with sums."""


class FewerSteps(Cadence):
    """Slow clients do fewer whole batches before one of them is halved."""

    def _kept(self, rates: Rates) -> int:
        return 1


class Hasty(Cadence):
    """Clients are back on the first beat that they can be back on, however slow links are."""

    def _period(self, clients: list[int]) -> float:
        period = super()._period(clients)
        self._links.slow = False
        return period


class SlownessCounts(Cadence):
    """Updates count by their beats and batches where links are slow, too, however old they are."""

    def _freshness(self, update: Arrived) -> float:
        return self._slowness(update)
