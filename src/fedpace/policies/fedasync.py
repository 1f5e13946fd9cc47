"""FedAsync (Xie et al., 2019, "Asynchronous federated optimization"): every update counts at once.

Algorithm 1, server: whenever a client's model x_new arrives, x = (1 - alpha_t) x + alpha_t x_new with
alpha_t = alpha * s(t - tau), where tau is the version that the client had downloaded. The client gets
the new model and goes on, so that nobody ever waits.

FedCompass (Li et al., 2024) compares itself with a FedAsync that adds the client's change instead of
its model, and weighs it by the client's share of all samples: w += alpha_t p_i delta_i (its Algorithm
1, line 25). That is `apply = "delta"` with `weigh = "samples"`.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from fedpace.core.commands import Aggregate
from fedpace.core.errors import Checked, Count, Fraction, Natural
from fedpace.core.events import Arrived
from fedpace.core.policy import Commands, Context
from fedpace.policies.shared.asynchronous import Asynchronous
from fedpace.policies.shared.staleness import POLYNOMIAL, Staleness


@dataclass(frozen=True, slots=True)
class FedAsyncSettings(Checked):
    alpha: Annotated[Fraction, "what a fresh update counts, in (0, 1]"] = 0.9
    staleness: Annotated[Staleness, "what an old update counts"] = POLYNOMIAL
    apply: Annotated[
        Literal["mix", "delta"],
        "mix: move towards the client's model, as in the paper; delta: add what it changed",
    ] = "mix"
    weigh: Annotated[
        Literal["equal", "samples"],
        "equal: all clients alike, as in the paper; samples: by share of the samples online",
    ] = "equal"
    max_staleness: Annotated[Natural | None, "drop updates older than this; default: none is"] = None
    concurrency: Annotated[Count | None, "clients that train at any time; default: all"] = None
    epochs: Annotated[Count | None, "local epochs; default: the run's"] = None


class FedAsync(Asynchronous[FedAsyncSettings]):
    """Asynchronous: the model moves a little towards every update as it comes, less if it is old."""

    Settings = FedAsyncSettings

    @classmethod
    def takes_memory(cls, adaptive: bool) -> bool:
        return False

    def __init__(self, settings: FedAsyncSettings, context: Context) -> None:
        super().__init__(
            settings, context, settings.concurrency, settings.epochs, settings.max_staleness
        )

    def take(self, update: Arrived, staleness: int) -> Commands:
        settings = self.settings
        weight = settings.alpha * settings.staleness(staleness)  # alpha_t
        if settings.weigh == "samples":
            weight *= self.books.clients.share(update.client)  # p_i
        rule: Literal["mix", "sum"] = "mix" if settings.apply == "mix" else "sum"
        return (Aggregate((update.task,), (weight,), rule=rule),)
