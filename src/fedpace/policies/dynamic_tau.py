"""Dynamic tau (Wang et al., IEEE JSAC 2019): local steps chosen anew for every round, batches fixed.

With T = K tau local steps in all, K rounds being what all the time and money allow at tau steps each,
the bound on the loss is

    1 / (2 eta phi T) + sqrt(1 / (4 eta^2 phi^2 T^2) + rho h(tau) / (eta phi tau)) + rho h(tau)

    h(tau) = delta/beta ((eta beta + 1)^tau - 1) - eta delta tau

and tau is where it is smallest, at most `growth` times the last one. rho, beta and delta are estimated
as DYNAMITE does (`estimates`); rho is here a Lipschitz constant, |F_i(w_i) - F_i(w)| / |w_i - w|.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fedpace.core.commands import Finish
from fedpace.core.errors import Checked, Count, OneOrMore, Positive
from fedpace.core.policy import Context
from fedpace.policies.batches import is_over
from fedpace.policies.shared.answers import Estimate
from fedpace.policies.shared.estimates import MEASURED, LossEstimates, weighted
from fedpace.policies.shared.stepped import Stepped, SteppedRound


@dataclass(frozen=True, slots=True)
class DynamicTauSettings(Checked):
    rounds: Annotated[Count | None, "end after so many; default: the run's stop says when"] = None
    tau_max: Annotated[Count, "most local steps of a round"] = 50
    growth: Annotated[OneOrMore, "tau grows by this factor from round to round, at most"] = 10.0
    phi: Annotated[
        Positive, "control parameter: the larger, the fewer local steps; 5e-5 for deep networks"
    ] = 0.025


def drift(tau: int, step: float, smoothness: float, divergence: float) -> float:
    """h(tau): how far tau local steps lead away from the global model."""
    if smoothness <= 0:
        return 0.0
    try:
        grown = math.expm1(tau * math.log1p(step * smoothness))
    except OverflowError:
        return math.inf
    # Of huge numbers, as where a run diverges, rounding alone could make it negative.
    return max(divergence / smoothness * grown - step * divergence * tau, 0.0)


class DynamicTau(Stepped[DynamicTauSettings]):
    """The number of local steps follows the clients' drift and what time and money are left."""

    Settings = DynamicTauSettings

    @classmethod
    def measures(cls, settings: DynamicTauSettings) -> tuple[Estimate, ...]:
        return (*MEASURED, "slope")

    def __init__(self, settings: DynamicTauSettings, context: Context) -> None:
        super().__init__(settings, context)
        self.estimates = LossEstimates(0.0)
        self._lipschitz = 0.0
        self._last = 1

    def learn(self, answers: Mapping[Estimate, Mapping[int, float]]) -> None:
        self.estimates.update(answers, self.devices, self.sizes)
        slope = weighted(answers["slope"], self.devices)
        self._lipschitz = self._lipschitz if slope is None else slope

    def next_round(self, clients: list[int], at: float) -> SteppedRound | Finish:
        over = is_over(self.settings.rounds, self.version)
        if over is not None:
            return over
        size = self.context.batch_size
        batches = {client: min(size, self.devices[client].held) for client in clients}
        if not self.estimates.known:
            return SteppedRound(1, batches)
        most = min(self.settings.tau_max, max(int(self.settings.growth * self._last), 1))
        rounds = [self._rounds(tau, batches) for tau in range(1, most + 1)]
        bounds = [
            self.bound(tau, count) if count >= 1 else math.inf
            for tau, count in enumerate(rounds, start=1)
        ]
        self._last = min(range(most), key=lambda index: bounds[index]) + 1
        return SteppedRound(self._last, batches)

    def _rounds(self, tau: int, batches: Mapping[int, int]) -> float:
        """K: how many rounds of tau steps the budgets are for."""
        budget, fit = self.context.budget, []
        if budget.money is not None:
            step_money = sum(budget.of(client) * size for client, size in batches.items())
            fit.append(budget.money / max(step_money * tau + budget.round_cost, 1e-300))
        if budget.time_s is not None:
            taken = (self.devices[client].round_s(tau, size) for client, size in batches.items())
            # Of newcomers alone nothing is known.
            round_s = max((seconds for seconds in taken if seconds is not None), default=0.0)
            fit.append(self.left_s(0.0) / max(round_s, 1e-300))
        if self.settings.rounds is not None:
            fit.append(float(self.settings.rounds))
        return min(fit, default=100.0)

    def bound(self, tau: int, rounds: float) -> float:
        """The bound on the loss after so many rounds of tau steps."""
        known, step, phi = self.estimates, self.context.step_size(self.version), self.settings.phi
        h = drift(tau, step, known.smoothness, known.divergence)
        if not math.isfinite(h):
            return math.inf
        first = 1 / (2 * step * phi * rounds * tau)
        lost = self._lipschitz * h
        return first + math.sqrt(first**2 + lost / (step * phi * tau)) + lost
