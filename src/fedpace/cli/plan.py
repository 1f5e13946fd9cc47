"""`fedpace plan deadlines | coopt`: the planners' answers to a problem in a file, without a run."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import typer
from rich.console import Console
from rich.table import Table

from fedpace.core.errors import Checked, ConfigError, Count, NonNegative, Positive
from fedpace.core.policy import step_size
from fedpace.planning.coopt import CooptPlan, plan_coopt, plan_gpu, plan_uniform
from fedpace.planning.coopt_bound import CooptBudget, CooptClients, CooptConstants, CooptProblem
from fedpace.planning.deadline_bound import DeadlineConstants, DeadlineProblem, DeadlineUsers
from fedpace.planning.deadlines import DeadlinePlan, choose_rounds, plan_deadlines
from fedpace.report.plans import coopt_plans, deadline_plans
from fedpace.runs import config as configs

P = TypeVar("P")

app = typer.Typer(
    help="Plan deadlines, steps or batches ahead, without a run.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

ProblemFile = Annotated[
    Path, typer.Argument(metavar="PROBLEM.toml", help="The problem, such as those in configs/plans.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as name=Trial."),
]
FigurePath = Annotated[
    Path | None, typer.Option(metavar="FIGURE.png", help="Draw the plan, as .png or .svg.")
]
CsvPath = Annotated[
    Path | None,
    typer.Option("--csv", metavar="FILE", help="Write the whole plan as comma-separated values."),
]


@dataclass(frozen=True, slots=True)
class DeadlinesFile(Checked):
    """A problem for `fedpace plan deadlines`; `users` and `constants` are tables."""

    budget_s: float
    layers: int
    users: DeadlineUsers
    constants: DeadlineConstants
    name: str = "Deadlines"
    rounds: Count | None = None
    lr: Positive | None = None
    decay: NonNegative | None = None
    steps: tuple[float, ...] | None = None
    local_steps: int = 1
    choose_rounds: bool = False
    scale_min: float | None = None
    scale_max: float | None = None
    rate_min: float | None = None

    def _check_rest(self) -> None:
        by_rule = {name: getattr(self, name) for name in ("rounds", "lr", "decay")}
        given = [name for name, value in by_rule.items() if value is not None]
        if self.steps is not None and given:
            raise ConfigError(
                f"steps are given, and so is {given[0]}; set steps, or rounds and lr, not both"
            )
        if self.steps is None and (self.rounds is None or self.lr is None):
            raise ConfigError(
                f"rounds is {self.rounds} and lr {self.lr}; set both, or the steps of all rounds"
            )

    @property
    def problem(self) -> DeadlineProblem:
        steps = self.steps
        if steps is None:
            lr, decay = self.lr or 0.0, self.decay or 0.0
            steps = tuple(step_size(lr, decay, t) for t in range(self.rounds or 0))
        return DeadlineProblem(
            self.layers,
            steps,
            self.users,
            self.constants,
            self.local_steps,
            self.scale_min,
            self.scale_max,
            self.rate_min,
        )

    def plan(self) -> DeadlinePlan:
        return (choose_rounds if self.choose_rounds else plan_deadlines)(self.problem, self.budget_s)


@app.command()
def deadlines(
    problem: ProblemFile, set_: Set = None, out: FigurePath = None, csv: CsvPath = None
) -> None:
    """Plan deadlines and batches for a time budget (ADEL-FL).

    Every round ends at its deadline, and every user sends the layers that it has got through by then,
    from the output on. The plan sets all deadlines and one batch scale m (a user of P samples/s gets
    batches of m P samples, less the share of its link) such that the bound on the distance to the
    optimum is smallest. A budget that is too small is refused with the smallest that works.

    \b
    Keys of the problem:
      budget_s          seconds for all rounds together
      layers            layers of the model
      rounds, lr, decay rounds, and step sizes lr / (1 + decay * round) [0]
      steps             the step size of every round, instead of these three
      choose_rounds     true: the best number of rounds up to that [false]
      local_steps       steps that a user takes in a round [1]
      scale_min/_max    limits of the batch scale m [one sample, all data]
      rate_min          smallest deadline / m; `layers` where times are steady
      name              heading of the figure
    \b
    [users], lists with one entry a user:
      samples_per_s     samples back-propagated through one layer a second
      link_s            seconds for transfers in a round
      data              samples that it holds, its largest batch [no limit]
    \b
    [constants] of the loss:
      convexity, smoothness, gradient (bound of its norm), noise (of a one-sample
      gradient, one number or one a user), heterogeneity, distance (squared, of
      the first model from the optimum)
    """
    wanted = _read(DeadlinesFile, problem, set_, out)
    found = wanted.plan()
    most = wanted.problem.rounds if wanted.choose_rounds else None

    def draw(path: Path) -> None:
        from fedpace.report.plans.deadline_figures import draw_deadline_plan

        draw_deadline_plan(found, path, wanted.name)

    _show(
        deadline_plans.headline(found, most),
        deadline_plans.table(found),
        deadline_plans.warnings(found),
        (csv, lambda path: deadline_plans.write_csv(found, path)),
        (out, draw),
    )


@dataclass(frozen=True, slots=True)
class CooptFile(Checked):
    """A problem for `fedpace plan coopt`; `clients`, `constants` and `budget` are tables."""

    clients: CooptClients
    constants: CooptConstants
    budget: CooptBudget
    name: str = "Local steps and batches"
    method: Literal["exact", "uniform", "gpu"] = "exact"
    tau_min: int = 1
    tau_max: int = 50
    step_s: float | tuple[float, ...] | None = None

    def _check_rest(self) -> None:
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


@app.command()
def coopt(problem: ProblemFile, set_: Set = None, out: FigurePath = None, csv: CsvPath = None) -> None:
    """Plan steps and batches for time and money (CoOptFL).

    CoOptFL is DYNAMITE's planner.
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
    wanted = _read(CooptFile, problem, set_, out)
    found = wanted.plan()
    each = [wanted.plan(tau) for tau in found.taus.tolist()]

    def draw(path: Path) -> None:
        from fedpace.report.plans.coopt_figures import draw_coopt_plan

        draw_coopt_plan(found, each, path, wanted.name)

    _show(
        coopt_plans.headline(found),
        coopt_plans.table(found, each),
        coopt_plans.warnings(found),
        (csv, lambda path: coopt_plans.write_csv(found, each, path)),
        (out, draw),
    )


def _read(kind: type[P], problem: Path, overrides: list[str] | None, out: Path | None) -> P:
    """Read a problem; a figure's name that cannot be written is refused before anything is computed."""
    if out is not None:
        from fedpace.report.figures import check_figure_name

        check_figure_name(out)
    return configs.build(kind, configs.read(problem, overrides or []), "")


def _show(
    headline: str,
    table: Table,
    warnings: Iterable[str],
    *files: tuple[Path | None, Callable[[Path], None]],
) -> None:
    """Print a plan, and write it to those of the files that have a path."""
    console = Console(highlight=False)
    console.print(headline, markup=False)
    console.print(table)
    for warning in warnings:
        console.print(f"warning: {warning}", markup=False)
    for path, write in files:
        if path is not None:
            write(path)
            console.print(str(path), markup=False, soft_wrap=True)
