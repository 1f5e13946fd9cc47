"""FedAsync (Xie et al., 2019, "Asynchronous federated optimization"): every update counts at once.

Algorithm 1, server: whenever a client's model x_new arrives, x = (1 - alpha_t) x + alpha_t x_new with
alpha_t = alpha * s(t - tau), where tau is the version that the client had downloaded. The client gets
the new model and goes on, so that nobody ever waits.

FedCompass (Li et al., 2024) compares itself with a FedAsync that adds the client's change instead of
its model, and weighs it by the client's share of all samples: w += alpha_t p_i delta_i (its Algorithm
1, line 25). That is `apply = "delta"` with `weigh = "samples"`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

from fedpace.core.commands import Aggregate, Command, Drop
from fedpace.core.errors import Checked, Count, Fraction, Natural
from fedpace.core.events import Arrived, Failed, Joined, Started
from fedpace.core.policy import Commands, Context, Policy
from fedpace.policies.shared.crew import Crew
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


class FedAsync(Policy[FedAsyncSettings]):
    """Asynchronous: the model moves a little towards every update as it comes, less if it is old."""

    Settings = FedAsyncSettings

    def __init__(self, settings: FedAsyncSettings, context: Context) -> None:
        super().__init__(settings, context)
        self._crew = Crew(self, settings.concurrency, context.work(settings.epochs))

    def on_started(self, event: Started) -> Commands:
        return self._crew.fill()

    def on_joined(self, event: Joined) -> Commands:
        return self._crew.fill()

    def on_failed(self, event: Failed) -> Commands:
        return self._crew.fill()

    def on_arrived(self, event: Arrived) -> Iterator[Command]:
        settings = self.settings
        staleness = self.version - event.version
        if settings.max_staleness is not None and staleness > settings.max_staleness:
            yield Drop(event.task, f"staleness {staleness} is over {settings.max_staleness}")
        else:
            weight = settings.alpha * settings.staleness(staleness)  # alpha_t
            if settings.weigh == "samples":
                weight *= self.books.clients.share(event.client)  # p_i
            rule: Literal["mix", "sum"] = "mix" if settings.apply == "mix" else "sum"
            yield Aggregate((event.task,), (weight,), rule=rule)
        yield from self._crew.fill()
