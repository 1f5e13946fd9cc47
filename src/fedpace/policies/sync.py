"""Synchronous FedAvg (McMahan et al., AISTATS 2017), with the usual ways to live with stragglers.

Every round n clients train the whole model for a fixed number of epochs, and the round ends when
they are all there. Options: ask more than n and take the first n (over-selection, Bonawitz et al.,
2019); end the round at a fixed deadline and drop who is late, as long as a quorum has arrived.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import Work
from fedpace.core.errors import ConfigError
from fedpace.core.policy import Context
from fedpace.policies.shared.checks import at_least
from fedpace.policies.shared.waiting import Waiting


@dataclass(frozen=True, slots=True)
class SyncSettings:
    n: Annotated[int | None, "clients whose updates a round waits for; default: all"] = None
    over_selection: Annotated[float, "ask this many times n clients, take the first n"] = 1.0
    deadline_s: Annotated[float | None, "end a round after this time; default: wait for n"] = None
    quorum: Annotated[int, "updates that a deadline must wait for; 0 allows empty rounds"] = 1
    epochs: Annotated[int | None, "local epochs; default: the run's"] = None

    def __post_init__(self) -> None:
        at_least("n", self.n, 1)
        at_least("over_selection", self.over_selection, 1)
        at_least("quorum", self.quorum, 0)
        at_least("epochs", self.epochs, 1)
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise ConfigError(f"deadline_s is {self.deadline_s}; set it above 0")


class Sync(Waiting[SyncSettings]):
    """Synchronous FedAvg: rounds that wait, with over-selection, deadline and quorum as options."""

    Settings = SyncSettings

    def __init__(self, settings: SyncSettings, context: Context) -> None:
        super().__init__(settings, context, settings.n, settings.deadline_s, settings.quorum)
        self.asked = math.ceil(self.n * settings.over_selection)

    def works(self, clients: list[int]) -> list[Work]:
        return [self.context.work(self.settings.epochs)] * len(clients)
