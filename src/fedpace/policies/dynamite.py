"""DYNAMITE (Liu et al.): local steps and batch sizes for every round, within time and money.

Algorithm 2 at the server: after each round clients' estimates of the loss (section 6.3, `estimates`)
are averaged, and CoOptFL (Algorithm 1, `planning.coopt`) minimises the marginal bound (30) for the next
one with what is left of the budgets. The first round takes one step with the run's batch.

Differs: the planner is given the rounds that are left, not all rounds.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Literal

from fedpace.core.commands import Finish, Note
from fedpace.core.errors import Checked, ConfigError, Count, NonNegative
from fedpace.core.policy import Context
from fedpace.planning.coopt import fitting_rounds, plan_next, plan_uniform
from fedpace.planning.coopt_bound import CooptBudget, CooptClients, CooptConstants, CooptProblem
from fedpace.policies.batches import is_over
from fedpace.policies.shared.answers import Estimate
from fedpace.policies.shared.estimates import MEASURED, LossEstimates
from fedpace.policies.shared.stepped import Stepped, SteppedRound


@dataclass(frozen=True, slots=True)
class DynamiteSettings(Checked):
    rounds: Annotated[Count, "K: rounds that the budgets are for"] = 100
    tau_max: Annotated[Count, "most local steps of a round"] = 50
    tau: Annotated[
        Count | None, "local steps of every round (ablation: static tau); default: chosen"
    ] = None
    batches: Annotated[
        Literal["fitted", "uniform"], "a batch size for each client, or one for all (ablation)"
    ] = "fitted"
    estimate_every: Annotated[
        Count, "clients estimate in every so many rounds, which takes them time; the paper: 1"
    ] = 1
    epsilon: Annotated[
        NonNegative, "clients' variances are taken anew when their mean loss grew by more"
    ] = 0.1


class Dynamite(Stepped[DynamiteSettings]):
    """Local steps and batch sizes planned for every round by what time and money are left."""

    Settings = DynamiteSettings

    @classmethod
    def measures(cls, settings: DynamiteSettings) -> tuple[Estimate, ...]:
        return MEASURED

    def __init__(self, settings: DynamiteSettings, context: Context) -> None:
        super().__init__(settings, context)
        budget = context.budget
        if budget.money is not None and settings.rounds * budget.round_cost >= budget.money:
            raise ConfigError(
                f"rounds is {settings.rounds}, which cost {settings.rounds * budget.round_cost:g} "
                f"without one sample, but the money is {budget.money:g}; plan fewer than "
                f"{math.ceil(budget.money / budget.round_cost)} rounds, or give more"
            )
        self.estimates = LossEstimates(settings.epsilon)

    def asks(self) -> bool:
        return not self.estimates.known or self.version % self.settings.estimate_every == 0

    def learn(self, answers: Mapping[Estimate, Mapping[int, float]]) -> None:
        self.estimates.update(answers, self.devices, self.sizes)

    def next_round(self, clients: list[int], at: float) -> SteppedRound | Finish:
        over = is_over(self.settings.rounds, self.version)
        if over is not None:
            return over
        usual = {client: min(self.context.batch_size, self.devices[client].held) for client in clients}
        if not self.estimates.known:
            return SteppedRound(self.settings.tau or 1, usual)
        problem = self._problem(clients, at, self.settings.rounds - self.version)
        if not (rounds := fitting_rounds(problem)):
            return SteppedRound(1, dict.fromkeys(clients, 1))  # what is left of the budgets decides
        if rounds < problem.budget.rounds:
            # As many would be of one sample each: half as many leave as much for batches.
            self.notes.append(
                Note(f"the budgets are enough for {rounds} of {problem.budget.rounds} rounds")
            )
            problem = self._problem(clients, at, max(rounds // 2, 1))
        try:
            uniform = self.settings.batches == "uniform"
            found = plan_uniform(problem, 1) if uniform else plan_next(problem)
        except ConfigError as error:
            self.notes.append(Note(f"no plan: {error}"))
            return SteppedRound(self.settings.tau or 1, usual)
        return SteppedRound(found.tau, dict(zip(clients, found.batches.tolist(), strict=True)))

    def _problem(self, clients: list[int], at: float, rounds: int) -> CooptProblem:
        known, budget = self.estimates, self.context.budget
        share = 1 / self.settings.estimate_every
        devices = {client: self.devices[client].on_average(share) for client in clients}
        speeds = [one for client in clients if (one := devices[client].samples_per_s) is not None]
        speed = median(speeds) if speeds else 1.0
        variance = median(known.variance.values())
        step = self.context.step_size(self.version)
        return CooptProblem(
            CooptClients(
                [devices[client].samples for client in clients],
                [known.variance.get(client, variance) for client in clients],
                [devices[client].samples_per_s or speed for client in clients],
                [devices[client].link_s + devices[client].extra_link_s for client in clients],
                [devices[client].held for client in clients],
                [devices[client].extra_steps for client in clients],
            ),
            CooptConstants(
                known.quadratic,
                known.smoothness,
                min(known.curvature, 0.99 / step),
                known.divergence,
                step,
                known.loss,
            ),
            CooptBudget(
                rounds,
                None if budget.time_s is None else self.left_s(at),
                None if budget.money is None else max(self.books.ledger.left, 0.0),
                [budget.of(client) for client in clients],
                budget.round_cost,
            ),
            tau_max=self.settings.tau or self.settings.tau_max,
            tau_min=self.settings.tau or 1,
        )
