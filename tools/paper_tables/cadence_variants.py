"""Forms of the policy cadence that were tried and did worse, for the table of its parts."""

from dataclasses import replace

from fedpace.core.commands import Aggregate, Command
from fedpace.core.events import Arrived, Timer
from fedpace.core.policy import Commands, Context
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
        return float(update.result.samples * beats**self._power)


class EveryBeat(Cadence):
    """An adaptive optimiser takes every beat's mean as a step of its own."""

    @classmethod
    def takes_memory(cls, adaptive: bool) -> bool:
        return True

    def __init__(self, settings: CadenceSettings, context: Context) -> None:
        super().__init__(settings, replace(context, adaptive=False))


class SummedEveryBeat(EveryBeat, Summed):
    """The same with sums."""
