"""`fedpace plan coopt`: local steps and batches under a deadline and a cost budget."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from fedpace.core.errors import ConfigError
from fedpace.planning.coopt import (
    CooptBudget,
    CooptClients,
    CooptConstants,
    CooptPlan,
    CooptProblem,
    plan_coopt,
    plan_gpu,
    plan_uniform,
)
from fedpace.report import coopt_plans
from fedpace.runs import config as configs

ProblemFile = Annotated[
    Path, typer.Argument(metavar="PROBLEM.toml", help="The problem, such as configs/plans/coopt.toml.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as budget.rounds=100."),
]


@dataclass(frozen=True, slots=True)
class CooptFile:
    """A problem for `fedpace plan coopt`; `clients`, `constants` and `budget` are tables."""

    clients: CooptClients
    constants: CooptConstants
    budget: CooptBudget
    name: str = "Local steps and batches"
    method: Literal["exact", "uniform", "gpu"] = "exact"
    tau_min: int = 1
    tau_max: int = 50
    step_s: float | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if (self.method == "gpu") != (self.step_s is not None):
            raise ConfigError(
                f"method is {self.method!r} and step_s {self.step_s}; give step_s, the seconds of a "
                "local step, with method 'gpu' only"
            )

    def plan(self, tau: int | None = None) -> CooptPlan:
        """The plan; tau: with that number of local steps."""
        least, most = (self.tau_min, self.tau_max) if tau is None else (tau, tau)
        problem = CooptProblem(self.clients, self.constants, self.budget, most, least)
        if self.step_s is not None:
            return plan_gpu(problem, self.step_s)
        return plan_uniform(problem) if self.method == "uniform" else plan_coopt(problem)


def coopt(
    problem: ProblemFile,
    set_: Set = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FIGURE.png", help="Draw the plan, as .png or .svg.")
    ] = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write every tau and its batches as comma-separated values."),
    ] = None,
) -> None:
    """Local steps and batches that make the most of time and money (CoOptFL, DYNAMITE's planner).

    Every round all clients take tau local steps, each with a batch of its own size. The plan sets both
    such that the bound on the loss after the last round is smallest, within a deadline for all rounds
    and a sum of money. Budgets that are too small are refused with the smallest that work.

    \b
    Keys of the problem:
      method            "exact": every client has its own batch; "uniform": one
                        size for all; "gpu": a step takes step_s, whatever the
                        batch ["exact"]
      step_s            with "gpu": seconds of a local step, for all or a list
      tau_min, tau_max  limits of the local steps in a round [1, 50]
      name              heading of the figure
    \b
    [budget]:
      rounds            rounds, all of which are alike
      deadline_s        seconds for all of them together [no limit]
      money             what all of them may cost together [no limit]
      sample_cost       of one sample in one step, for all or a list [0]
      round_cost        of a round [0]
    \b
    [clients], lists with one entry a client:
      samples           samples that its weight in the model follows
      variance          of the gradient of one sample
      samples_per_s     samples trained a second (not used with "gpu")
      link_s            seconds for transfers in a round
      stored            samples that it can draw a batch from [all]
      extra_steps       steps that a round takes the time of besides tau [0]
    \b
    [constants] of the loss and the step:
      quadratic, smoothness, curvature (Polyak-Lojasiewicz), divergence (of the
      clients' gradients from the global one), step, gap (of the first model's
      loss to the smallest), alignment [1]
    """
    if out is not None:
        from fedpace.report.plan_figures import check_name

        check_name(out)
    wanted = configs.build(CooptFile, configs.read(problem, set_ or []), "")
    found = wanted.plan()
    console = Console(highlight=False)
    console.print(coopt_plans.headline(found), markup=False)
    each = [wanted.plan(tau) for tau in found.taus.tolist()]
    console.print(coopt_plans.table(found, each))
    for warning in coopt_plans.warnings(found):
        console.print(f"warning: {warning}", markup=False)
    if csv is not None:
        coopt_plans.write_csv(found, each, csv)
        console.print(str(csv), markup=False, soft_wrap=True)
    if out is not None:
        from fedpace.report.coopt_figures import figure

        figure(found, each, out, wanted.name)
        console.print(str(out), markup=False, soft_wrap=True)
