"""`fedpace plan`: what the planners say about a problem in a file, without a run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedpace.cli.plan_coopt import coopt
from fedpace.core.errors import ConfigError
from fedpace.core.schedule import check_steps, step_size
from fedpace.planning.deadline_bound import DeadlineConstants, DeadlineProblem, DeadlineUsers
from fedpace.planning.deadlines import DeadlinePlan, choose_rounds, plan_deadlines
from fedpace.report import plans
from fedpace.runs import config as configs

app = typer.Typer(
    help="Plan ahead: what the planners of policies answer to a problem that you describe.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command()(coopt)

ProblemFile = Annotated[
    Path,
    typer.Argument(metavar="PROBLEM.toml", help="The problem, such as configs/plans/deadlines.toml."),
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override a key, such as budget_s=900."),
]


@dataclass(frozen=True, slots=True)
class DeadlinesFile:
    """A problem for `fedpace plan deadlines`; `users` and `constants` are tables."""

    budget_s: float
    layers: int
    users: DeadlineUsers
    constants: DeadlineConstants
    name: str = "Deadlines"
    rounds: int | None = None
    lr: float | None = None
    decay: float | None = None
    steps: tuple[float, ...] | None = None
    local_steps: int = 1
    choose_rounds: bool = False
    scale_min: float | None = None
    scale_max: float | None = None
    rate_min: float | None = None

    def __post_init__(self) -> None:
        by_rule = {name: getattr(self, name) for name in ("rounds", "lr", "decay")}
        given = [name for name, value in by_rule.items() if value is not None]
        if self.steps is not None and given:
            raise ConfigError(
                f"steps are given, and so is {given[0]}; set steps, or rounds and lr, not both"
            )
        if self.steps is None:
            if self.rounds is None or self.lr is None:
                raise ConfigError(
                    f"rounds is {self.rounds} and lr {self.lr}; set both, or the steps of all rounds"
                )
            if self.rounds < 1:
                raise ConfigError(f"rounds is {self.rounds}; set it to 1 or more")
            check_steps(self.lr, self.decay or 0.0)

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
    problem: ProblemFile,
    set_: Set = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FIGURE.png", help="Draw the plan, as .png or .svg.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write all rounds as comma-separated values.")
    ] = None,
) -> None:
    """Deadlines and batches that make the most of a time budget (ADEL-FL).

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
    if out is not None:
        from fedpace.report.plan_figures import check_name

        check_name(out)
    wanted = configs.build(DeadlinesFile, configs.read(problem, set_ or []), "")
    found = wanted.plan()
    console = Console(highlight=False)
    most = wanted.problem.rounds if wanted.choose_rounds else None
    console.print(plans.headline(found, most), markup=False)
    console.print(plans.table(found))
    for warning in plans.warnings(found):
        console.print(f"warning: {warning}", markup=False)
    if csv is not None:
        plans.write_csv(found, csv)
        console.print(str(csv), markup=False, soft_wrap=True)
    if out is not None:
        from fedpace.report.plan_figures import figure

        figure(found, out, wanted.name)
        console.print(str(out), markup=False, soft_wrap=True)
