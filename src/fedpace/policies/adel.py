"""ADEL-FL: deadlines and batches of all rounds are planned together for a given time.

Rounds are layer-wise (`layered`): backpropagation stops at the deadline. How long each round lasts,
and how large everybody's batch is, minimises the convergence bound (Problem 2, `planning.deadlines`)
for what is known: speeds and links of the clients, and constants of the loss (A1 to A3). What is not
given is measured in a warm-up round, in which everybody trains one whole batch; it is part of the
budget, and its updates count. The rest of the rounds is planned anew when speeds or clients change.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated, Literal

from fedpace.core.commands import Finish, Note
from fedpace.core.errors import Allowed, Checked, ConfigError, Count, NonNegative, Positive
from fedpace.core.policy import Context
from fedpace.planning.deadline_bound import DeadlineConstants, DeadlineProblem, DeadlineUsers
from fedpace.planning.deadlines import DeadlinePlan, choose_rounds, fitting_rounds, plan_deadlines
from fedpace.policies.shared.answers import Estimate
from fedpace.policies.shared.layered import Averaging, Layered, LayeredRound, Times

_INSTEAD: dict[str, str] = {
    "gradient": "; it is taken to be 1",
    "noise": "; batches stay as large as the run has them on average",
    "smoothness": "",
}


@dataclass(frozen=True, slots=True)
class ConstantSettings(Checked):
    """Constants of the loss; only noise / gradient and convexity shape the plan of given rounds."""

    gradient: Annotated[Positive | None, "G: root mean squared gradient norm; default: measured"] = None
    noise: Annotated[NonNegative | None, "sigma: of one sample's gradient; default: measured"] = None
    smoothness: Annotated[NonNegative | None, "L_s; default: measured"] = None
    convexity: Annotated[NonNegative, "mu; 0: no round forgets an earlier one"] = 0.0
    heterogeneity: Annotated[NonNegative, "Gamma, the gap between the clients' optima"] = 0.0
    distance: Annotated[NonNegative, "D0: squared, from the first model to the optimum"] = 1.0
    factors: Annotated[
        Mapping[Literal["gradient", "noise", "smoothness"], float],
        "multiply what was measured, such as { noise = 2.0 }: how much does the plan depend on it?",
    ] = field(default_factory=dict)

    def _check_rest(self) -> None:
        for name, factor in self.factors.items():
            if not (math.isfinite(factor) and factor > 0):
                raise ConfigError(f"factors.{name} is {factor}; set it above 0")


@dataclass(frozen=True, slots=True)
class ADELSettings(Checked):
    budget_s: Annotated[
        Positive | None,
        "T_tot: seconds that training may take in all; default: the run's budget.time_s",
    ] = None
    rounds: Annotated[Count, "R: rounds that the budget is for, the warm-up not counted"] = 100
    choose_rounds: Annotated[
        bool, "as many of `rounds` as give the smallest bound; needs convexity and distance"
    ] = False
    times: Annotated[
        Times,
        "how long a layer takes: exponential (B1), or steady: then every round is long enough for the "
        "whole model, or nobody would ever reach its first layers; auto: found out",
    ] = "auto"
    constants: Annotated[ConstantSettings, "of the loss"] = field(default_factory=ConstantSettings)
    tolerance: Annotated[NonNegative, "plan anew when a speed has changed by this share"] = 0.1
    warm_up: Annotated[
        float,
        Allowed("above 0 and below 1", lambda value: 0 < value < 1),
        "share of the budget after which the warm-up stops waiting",
    ] = 0.05
    averaging: Annotated[Averaging, "weigh, cap, smoothing"] = field(default_factory=Averaging)

    def _check_rest(self) -> None:
        if self.choose_rounds and not (self.constants.convexity > 0 and self.constants.distance > 0):
            raise ConfigError(
                "choose_rounds needs constants.convexity and constants.distance above 0: without them "
                "the bound only grows with every round, and one round would always be best"
            )


@dataclass(frozen=True, slots=True, eq=False)
class _Planned:
    """A plan, and whom and which rounds it is for."""

    plan: DeadlinePlan
    clients: tuple[int, ...]
    since: int  # the first round of it
    speeds: tuple[tuple[float, float], ...]  # P_u and B_u
    steady: bool


class ADEL(Layered[ADELSettings]):
    """Deadlines and batches planned together; backpropagation stops at the deadline."""

    Settings = ADELSettings
    plans_with_budget = True

    @classmethod
    def measures(cls, settings: ADELSettings) -> tuple[Estimate, ...]:
        """The constants that are not given, in the warm-up."""
        names: tuple[Estimate, ...] = ("gradient", "noise", "smoothness")
        return tuple(name for name in names if getattr(settings.constants, name) is None)

    def __init__(self, settings: ADELSettings, context: Context) -> None:
        budget_s = settings.budget_s or context.budget.time_s
        if budget_s is None:
            raise ConfigError("budget_s is not set; give it, or budget.time_s, the time for all rounds")
        warm_up_s = settings.warm_up * budget_s
        super().__init__(settings, context, settings.averaging, settings.times, warm_up_s, budget_s)
        self._budget_s = budget_s
        self._wanted = self._last = settings.rounds  # the last round; the warm-up is round 0
        self._planned: _Planned | None = None
        self._constants: DeadlineConstants | None = None

    def next_round(self, at: float) -> LayeredRound | Finish:
        if self.version > self._last:
            return Finish(f"all {self._last} rounds of the plan are over")
        clients = tuple(client for client in self.books.clients.online if client in self.speeds)
        if not clients:  # only newcomers: they show their speed in a round of ordinary length
            left_s, rounds = self._budget_s - at, self._last + 1 - self.version
            return LayeredRound(left_s / rounds, {}) if left_s > 0 else self._spent()
        planned = self._planned
        if planned is None or self._outdated(planned, clients):
            planned = self._plan(at, clients)
            if planned is None:
                return self._spent()
            self._planned = planned
        number, plan = self.version - planned.since, planned.plan
        # Two users stand for one (see _users); zip leaves the second out.
        batches = dict(zip(clients, plan.batches[number].tolist(), strict=False))
        deadline_s = float(plan.deadlines_s[number])
        return LayeredRound(deadline_s, batches, None if self.steady else deadline_s / plan.scale)

    def _spent(self) -> Finish:
        return Finish(f"the budget of {self._budget_s:g} s is spent after {self.version} rounds")

    def _outdated(self, planned: _Planned, clients: tuple[int, ...]) -> bool:
        if clients != planned.clients or planned.steady != self.steady:
            return True
        shortest_s = float(planned.plan.deadlines_s[self.version - planned.since :].min())
        for client, (samples_per_s, link_s) in zip(clients, planned.speeds, strict=True):
            now = self.speeds[client]
            if abs(now.samples_per_s / samples_per_s - 1) > self.settings.tolerance:
                return True
            if abs(now.link_s - link_s) > self.settings.tolerance * shortest_s:
                return True
        return False

    def _plan(self, at: float, clients: tuple[int, ...]) -> _Planned | None:
        """The best plan for what is left; None where not even one round is possible."""
        left_s = self._budget_s - at
        steps = [self.context.step_size(t) for t in range(self.version, self._wanted + 1)]
        users, constants = self._users(clients), self._known_constants()
        depth = self.context.model.depth
        scale = None
        if constants.noise == 0:  # nothing speaks for large batches: they stay as the run has them
            scale = median(self.context.batch_size / one for one in users.samples_per_s)
        problem = DeadlineProblem(
            depth,
            steps,
            users,
            constants,
            local_steps=self.local_steps,
            scale_min=scale,
            scale_max=scale,
            # Speeds may be off by the tolerance before they are planned for anew.
            rate_min=depth * (1 + min(self.settings.tolerance, 1.0)) if self.steady else None,
        )
        fit = fitting_rounds(problem, left_s)
        if not fit:
            return None
        first = self._planned is None
        self._last = self.version + fit - 1
        if fit < problem.rounds:
            self.notes.append(Note(f"{left_s:g} s are enough for {fit} of {problem.rounds} rounds"))
            problem = replace(problem, steps=steps[:fit])
        if first and self.settings.choose_rounds:
            found = choose_rounds(problem, left_s)
            self._wanted = self._last = self.version + found.problem.rounds - 1
        else:
            found = plan_deadlines(problem, left_s)
        self.notes.append(Note(_said(found)))
        speeds = tuple((self.speeds[c].samples_per_s, self.speeds[c].link_s) for c in clients)
        return _Planned(found, clients, self.version, speeds, self.steady)

    def _users(self, clients: tuple[int, ...]) -> DeadlineUsers:
        """The bound is for two users at least; one alone stands for two like it.

        A network's slack makes computing and transfers longer. Differs: the paper's batches do not
        depend on E; here E steps take as long as one would.
        """
        several = clients * 2 if len(clients) == 1 else clients
        slack = 1 + self.context.slack
        return DeadlineUsers(
            [self.speeds[client].samples_per_s / slack / self.local_steps for client in several],
            [self.speeds[client].link_s * slack for client in several],
            [self.books.clients.held(client) for client in several],
        )

    def _known_constants(self) -> DeadlineConstants:
        """Given, or measured in the warm-up: root mean squares over those who could tell."""
        if self._constants is None:
            given = self.settings.constants
            factors = {str(name): factor for name, factor in given.factors.items()}
            found = {
                name: factors.get(name, 1.0) * _root_mean_square(self.estimates[name].values())
                for name in self._measure
            }
            gradient = found.get("gradient", given.gradient)
            for name in [name for name, value in found.items() if not value]:
                self.notes.append(Note(f"{name} could not be measured{_INSTEAD[name]}"))
                del found[name]
            gradient = gradient or 1.0
            self._constants = DeadlineConstants(
                given.convexity,
                found.get("smoothness", given.smoothness) or 0.0,
                gradient,
                found.get("noise", given.noise) or 0.0,
                given.heterogeneity,
                given.distance,
            )
            if found:
                values = ", ".join(f"{name} {value:.4g}" for name, value in found.items())
                self.notes.append(Note(f"measured in the warm-up: {values}"))
        return self._constants


def _root_mean_square(values: Iterable[float]) -> float:
    squares = [value**2 for value in values if math.isfinite(value)]
    return math.sqrt(math.fsum(squares) / len(squares)) if squares else 0.0


def _said(found: DeadlinePlan) -> str:
    first, last = found.deadlines_s[0], found.deadlines_s[-1]
    reached = found.reached[:, 0]
    return (
        f"plan: {found.problem.rounds} rounds of {first:.4g} s to {last:.4g} s, "
        f"{math.fsum(found.deadlines_s):.6g} of {found.budget_s:.6g} s; batches of "
        f"{found.batches.min()} to {found.batches.max()} samples; the first layer is reached with a "
        f"chance of {reached.min():.3g} to {reached.max():.3g}"
        + (f"; {found.raised} batches would be below one sample" if found.raised else "")
    )
