"""DYNAMITE (Liu et al.): local steps and batch sizes for every round, within time and money.

Algorithm 2 at the server: after each round clients' estimates of the loss (section 6.3, `estimates`)
are averaged, and CoOptFL (Algorithm 1, `planning.coopt`) minimises the marginal bound (30) for the next
one with what is left of the budgets. The first round takes one step with the run's batch.

Differs: the planner is given the rounds that are left, not all rounds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Literal

from fedpace.core.commands import Finish, Note
from fedpace.core.errors import ConfigError
from fedpace.core.policy import Context
from fedpace.planning.coopt import Budget, Clients, Constants, Problem, fitting_rounds, plan_next
from fedpace.planning.coopt import plan_uniform as plan_alike
from fedpace.policies.answers import Estimate
from fedpace.policies.batches import is_over
from fedpace.policies.checks import at_least
from fedpace.policies.estimates import MEASURED, Estimates
from fedpace.policies.stepped import Round, Stepped


@dataclass(frozen=True, slots=True)
class DynamiteSettings:
    rounds: Annotated[int, "K: rounds that the budgets are for"] = 100
    tau_max: Annotated[int, "most local steps of a round"] = 50
    tau: Annotated[int | None, "local steps of every round (ablation: static tau); default: chosen"] = (
        None
    )
    batches: Annotated[
        Literal["fitted", "uniform"], "a batch size for each client, or one for all (ablation)"
    ] = "fitted"
    epsilon: Annotated[float, "a client's variance is taken anew when its loss grew by more"] = 0.1

    def __post_init__(self) -> None:
        at_least("rounds", self.rounds, 1)
        at_least("tau_max", self.tau_max, 1)
        at_least("tau", self.tau, 1)
        at_least("epsilon", self.epsilon, 0)


class Dynamite(Stepped[DynamiteSettings]):
    """Local steps and batch sizes planned for every round by what time and money are left."""

    Settings = DynamiteSettings

    def __init__(self, settings: DynamiteSettings, context: Context) -> None:
        super().__init__(settings, context, MEASURED)
        self._estimates = Estimates(settings.epsilon)

    def learn(self, answers: Mapping[Estimate, Mapping[int, float]]) -> None:
        self._estimates.update(answers, self.devices)

    def next_round(self, clients: list[int], at: float) -> Round | Finish:
        over = is_over(self.settings.rounds, self.version)
        if over is not None:
            return over
        usual = {client: min(self.context.batch_size, self.devices[client].held) for client in clients}
        if not self._estimates.known:
            return Round(self.settings.tau or 1, usual)
        problem = self._problem(clients, at, self.settings.rounds - self.version)
        rounds = fitting_rounds(problem)
        if not rounds:
            return Round(1, dict.fromkeys(clients, 1))  # what is left of the budgets decides
        if rounds < problem.budget.rounds:
            self.notes.append(
                Note(f"the budgets are enough for {rounds} of {problem.budget.rounds} rounds")
            )
            problem = self._problem(clients, at, rounds)
        try:
            found = plan_alike(problem, 1) if self.settings.batches == "uniform" else plan_next(problem)
        except ConfigError as error:
            self.notes.append(Note(f"no plan: {error}"))
            return Round(self.settings.tau or 1, usual)
        return Round(found.tau, dict(zip(clients, found.batches.tolist(), strict=True)))

    def _problem(self, clients: list[int], at: float, rounds: int) -> Problem:
        known, budget, devices = self._estimates, self.context.budget, self.devices
        speeds = [one for client in clients if (one := devices[client].samples_per_s) is not None]
        speed = median(speeds) if speeds else 1.0
        variance = median(known.variance.values())
        step = self.context.step_size(self.version)
        return Problem(
            Clients(
                [devices[client].samples for client in clients],
                [known.variance.get(client, variance) for client in clients],
                [devices[client].samples_per_s or speed for client in clients],
                [devices[client].link_s for client in clients],
                [devices[client].held for client in clients],
            ),
            Constants(
                known.quadratic,
                known.smoothness,
                min(known.curvature, 0.99 / step),
                known.divergence,
                step,
                known.loss,
            ),
            Budget(
                rounds,
                None
                if budget.time_s is None
                else max(budget.time_s - at, 0.0) / (1 + self.context.slack),
                None if budget.money is None else max(self.ledger.left, 0.0),
                [budget.of(client) for client in clients],
                budget.round_cost,
            ),
            tau_max=self.settings.tau or self.settings.tau_max,
            tau_min=self.settings.tau or 1,
        )
