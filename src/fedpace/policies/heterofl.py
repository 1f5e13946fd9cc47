"""HeteroFL (Diao, Ding, Tarokh, ICLR 2021): slow clients train a thinner model.

A client of level r gets, trains and sends the leading r-th part of the channels of every layer; the
server averages every number of the model over those who hold it. Rounds are synchronous.

Differs: the paper gives clients their levels at random, for good or anew each round. Here a client gets
the widest level that its measured speed lets it finish within a target time; one that has not been
heard of, or was late the last time, gets the narrowest, and what it sends tells its speed.
Differs: the paper counts all clients alike. Here they weigh by their samples, as FedAvg's do.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec.structs import replace

from fedpace.core.commands import TOLERANCE, Work
from fedpace.core.errors import Checked, ConfigError, Count, Natural, Positive
from fedpace.core.events import Arrived, Rates
from fedpace.core.model import ModelProfile, Width
from fedpace.core.policy import Commands, Context
from fedpace.policies.shared.columns import Columns
from fedpace.policies.shared.waiting import Waiting


@dataclass(frozen=True, slots=True)
class HeteroFLSettings(Checked):
    n: Annotated[Count | None, "clients whose updates a round waits for; default: all"] = None
    levels: Annotated[
        tuple[float, ...], "shares of the channels that a client may train, widest first"
    ] = (1.0, 0.5, 0.25, 0.125, 0.0625)
    target_s: Annotated[
        Positive | None,
        "a client gets the widest level that it can finish in this time; "
        "default: deadline_s, and without one what the full model takes the median client",
    ] = None
    deadline_s: Annotated[Positive | None, "end a round after this time; default: wait for n"] = None
    quorum: Annotated[Natural, "updates that a deadline must wait for; 0 allows empty rounds"] = 1
    epochs: Annotated[Count | None, "local epochs; default: the run's"] = None

    def _check_rest(self) -> None:
        falling = all(one > two for one, two in zip(self.levels, self.levels[1:], strict=False))
        if not self.levels or not falling or not all(0 < level <= 1 for level in self.levels):
            raise ConfigError(
                f"levels is {list(self.levels)}; give shares above 0 and at most 1, widest first"
            )
        if self.target_s and self.deadline_s and self.target_s > self.deadline_s:
            raise ConfigError(
                f"target_s is {self.target_s}, but rounds end after {self.deadline_s} s, so that work "
                f"for that long is late; set target_s to {self.deadline_s} or less"
            )


def task_s(rates: Rates, work: Work, model: ModelProfile, width: Width | None) -> float:
    """Predicted seconds of a task: download, training and upload; width None: of the full model."""
    size, compute = (1.0, 1.0) if width is None else (width.bytes / model.total_bytes, width.compute)
    steps = work.steps or (work.epochs or 1) * rates.batches
    fixed_s = sum(min(rates.latency_s, way_s) for way_s in (rates.down_s, rates.up_s))
    return fixed_s + size * (rates.down_s + rates.up_s - fixed_s) + compute * steps * rates.batch_s


@dataclass(frozen=True, slots=True)
class _Seconds:
    """Predicted seconds of a task with the full model."""

    task_s: float


class HeteroFL(Waiting[HeteroFLSettings]):
    """Synchronous rounds in which slow clients train the leading channels of every layer only."""

    Settings = HeteroFLSettings

    @classmethod
    def takes_memory(cls, adaptive: bool) -> bool:
        return False

    @classmethod
    def widths(cls, settings: HeteroFLSettings) -> tuple[float, ...]:
        return tuple(level for level in settings.levels if level != 1)

    def __init__(self, settings: HeteroFLSettings, context: Context) -> None:
        super().__init__(settings, context, settings.n, settings.deadline_s, settings.quorum)
        self._work = context.work(settings.epochs)
        self._levels = [None if share == 1 else context.model.width(share) for share in settings.levels]
        self._rates = Columns(Rates)
        """As last measured; of those who have left, too, and not of those who were late."""
        self._whole = Columns(_Seconds)
        """Of the same clients."""

    def works(self, clients: list[int]) -> Iterator[Work]:
        target_s = self._target_s()
        for client in clients:
            level = self._level(client, target_s)
            yield replace(self._work, width=None if level is None else level.share)

    def on_arrived(self, event: Arrived) -> Commands:
        self._rates[event.client] = event.rates
        self._whole[event.client] = _Seconds(self._task_s(event.rates, None))
        return super().on_arrived(event)

    def was_late(self, client: int) -> None:
        self._rates.pop(client, None)
        self._whole.pop(client, None)

    def _target_s(self) -> float:
        """0 as long as nobody is known: then everybody gets the narrowest level anyway."""
        chosen = self.settings.target_s or self.settings.deadline_s
        if chosen is not None or not self._rates:
            return chosen or 0.0
        return float(np.median(self._whole.column("task_s")))

    def _level(self, client: int, target_s: float) -> Width | None:
        """The widest that is predicted to fit, or else the narrowest."""
        rates = self._rates.get(client)
        if rates is not None:
            for level in self._levels:
                if self._task_s(rates, level) <= target_s * (1 + TOLERANCE):
                    return level
        return self._levels[-1]

    def _task_s(self, rates: Rates, level: Width | None) -> float:
        return task_s(rates, self._work, self.context.model, level)
