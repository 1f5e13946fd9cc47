"""Fixed ways to choose batch sizes, which DYNAMITE (Liu et al.) is compared with.

All take the run's number of local steps. `uniform`: the run's batch for everybody. `no_straggler`
(Ma et al., IEEE TMC 2021): batches in proportion to speed, the total as with `uniform`, so that all
take as long. `dbfl`: batches that start small and grow by a factor every round.
"""

from dataclasses import dataclass
from statistics import mean
from typing import Annotated

from fedpace.core.commands import Finish
from fedpace.core.errors import Allowed, Checked, Count
from fedpace.core.policy import Context
from fedpace.policies.shared.stepped import Stepped, SteppedRound


@dataclass(frozen=True, slots=True)
class RoundsSettings(Checked):
    rounds: Annotated[Count | None, "end after so many; default: the run's stop says when"] = None


def is_over(rounds: int | None, version: int) -> Finish | None:
    """The end of a policy that was given a number of rounds."""
    return Finish(f"{rounds} rounds are over") if rounds is not None and version >= rounds else None


class Uniform(Stepped[RoundsSettings]):
    """One batch size for all clients, round after round."""

    Settings = RoundsSettings

    def next_round(self, clients: list[int], at: float) -> SteppedRound | Finish:
        size = self.context.batch_size
        batches = {client: min(size, self.devices[client].held) for client in clients}
        return is_over(self.settings.rounds, self.version) or SteppedRound(self.tau, batches)


class NoStraggler(Stepped[RoundsSettings]):
    """Batches in proportion to speed, so that everybody takes as long."""

    Settings = RoundsSettings

    def next_round(self, clients: list[int], at: float) -> SteppedRound | Finish:
        over = is_over(self.settings.rounds, self.version)
        if over is not None:
            return over
        known = [one for client in clients if (one := self.devices[client].samples_per_s) is not None]
        usual = mean(known) if known else 1.0
        batches = {}
        for client in clients:
            device = self.devices[client]
            size = round(self.context.batch_size * (device.samples_per_s or usual) / usual)
            batches[client] = min(max(size, 1), device.held)
        return SteppedRound(self.tau, batches)


@dataclass(frozen=True, slots=True)
class DBFLSettings(Checked):
    rounds: Annotated[Count | None, "end after so many; default: the run's stop says when"] = None
    start: Annotated[Count | None, "batch of the first round; default: a tenth of the run's"] = None
    factor: Annotated[
        float,
        Allowed("to 1 or more, and below 100", lambda value: 1 <= value < 100),
        "a batch is this many times that of the round before",
    ] = 1.1
    most: Annotated[Count | None, "largest batch; default: what a client holds"] = None


class DBFL(Stepped[DBFLSettings]):
    """Batches that start small and grow from round to round."""

    Settings = DBFLSettings

    def __init__(self, settings: DBFLSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._size = float(settings.start or max(round(context.batch_size / 10), 1))

    def next_round(self, clients: list[int], at: float) -> SteppedRound | Finish:
        over = is_over(self.settings.rounds, self.version)
        if over is not None:
            return over
        largest = max(self.devices[client].held for client in clients)
        size = min(self._size, self.settings.most or largest)
        self._size = size * self.settings.factor
        return SteppedRound(
            self.tau, {client: min(int(size), self.devices[client].held) for client in clients}
        )
