"""Synchronous FedAvg (McMahan et al., AISTATS 2017), with the usual ways to live with stragglers.

Every round n clients train the whole model for a fixed number of epochs, and the round ends when
they are all there. Options: ask more than n and take the first n (over-selection, Bonawitz et al.,
2019); end the round at a fixed deadline and drop who is late, as long as a quorum has arrived.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import Work
from fedpace.core.errors import Checked, Count, Natural, OneOrMore, Positive
from fedpace.core.policy import Context
from fedpace.policies.shared.waiting import Waiting


@dataclass(frozen=True, slots=True)
class SyncSettings(Checked):
    n: Annotated[Count | None, "clients whose updates a round waits for; default: all"] = None
    over_selection: Annotated[OneOrMore, "ask this many times n clients, take the first n"] = 1.0
    deadline_s: Annotated[Positive | None, "end a round after this time; default: wait for n"] = None
    quorum: Annotated[Natural, "updates that a deadline must wait for; 0 allows empty rounds"] = 1
    epochs: Annotated[Count | None, "local epochs; default: the run's"] = None


class Sync(Waiting[SyncSettings]):
    """Synchronous FedAvg: rounds that wait, with over-selection, deadline and quorum as options."""

    Settings = SyncSettings

    def __init__(self, settings: SyncSettings, context: Context) -> None:
        super().__init__(settings, context, settings.n, settings.deadline_s, settings.quorum)
        self.asked = math.ceil(self.n * settings.over_selection)

    def works(self, clients: list[int]) -> list[Work]:
        return [self.context.work(self.settings.epochs)] * len(clients)
