"""SALF (Lang, Cohen, Shlezinger, IEEE Trans. Commun. 2025): layer-wise rounds of one length.

Every round has the same deadline and every client the same batch; backpropagation stops on time, and
each layer is averaged over those who reached it. ADEL-FL is this with deadlines and batches planned.

With unequal speeds the mean of a layer is mostly that of the fast, who reach it more often: the sum of
the weights is right, their shares are not, and where clients' gradients are unlike each other the first
layers step too far along those of the fast (docs/adel.md has by how much). So it is in the paper.

Differs: a layer that nobody reached stays as it is, as in ADEL-FL (eq. 5).
"""

from dataclasses import dataclass, field
from typing import Annotated

from fedpace.core.commands import Finish
from fedpace.core.errors import Checked, Count, Positive
from fedpace.core.policy import Context
from fedpace.policies.shared.layered import Averaging, Layered, LayeredRound, Times


@dataclass(frozen=True, slots=True)
class SALFSettings(Checked):
    deadline_s: Annotated[Positive, "seconds that every round lasts"] = 60.0
    rounds: Annotated[Count | None, "end after so many; default: the run's stop says when"] = None
    times: Annotated[
        Times, "how long layers take: exponential around their cost, steady, or found out (auto)"
    ] = "auto"
    averaging: Annotated[Averaging, "weigh, cap, smoothing"] = field(default_factory=Averaging)


class SALF(Layered[SALFSettings]):
    """Rounds of one length and batches of one size; backpropagation stops at the deadline."""

    Settings = SALFSettings

    def __init__(self, settings: SALFSettings, context: Context) -> None:
        super().__init__(
            settings, context, settings.averaging, settings.times, warm_up_s=settings.deadline_s
        )

    def next_round(self, at: float) -> LayeredRound | Finish:
        settings = self.settings
        if settings.rounds is not None and self.version >= settings.rounds:
            return Finish(f"{settings.rounds} rounds are over")
        most = {client: self.books.clients.held(client) for client in self.books.clients.online}
        return LayeredRound(
            settings.deadline_s,
            {
                client: min(self.context.batch_size, samples)
                for client, samples in most.items()
                if client in self.speeds
            },
        )
