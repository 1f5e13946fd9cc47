"""`fedpace sweep`: every setting of a grid, and the best of each policy on seeds of its own."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from fedpace.cli import shared
from fedpace.cli.help.completion import complete_grid_key
from fedpace.cli.simulation import Together, end_with_failures, running
from fedpace.core.errors import ConfigError
from fedpace.runs import config as configs
from fedpace.runs.config import Config


def sweep(
    config: shared.ConfigFile,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=A,B,C",
            help="Values to try, such as train.lr=0.05,0.1 or policies.timelyfl.k=8,16; of several "
            "keys all combinations [those of sweep.grid].",
            autocompletion=complete_grid_key,
        ),
    ] = None,
    policies: shared.PolicyLabels = None,
    seeds: Annotated[
        int | None, typer.Option(help="Runs of each chosen setting that are reported.")
    ] = None,
    choose_seeds: Annotated[
        int | None, typer.Option(help="Runs of every setting that the choice is made on [2].")
    ] = None,
    target: Annotated[
        list[float] | None,
        typer.Option(help="Choose by the time to this value of the metric; of several, by the mean."),
    ] = None,
    at_hours: Annotated[
        float | None, typer.Option(help="Choose by the metric at this hour of the run's clock.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="What that is of [the task's main one].")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="time|value", help="Choose by time to targets, or by the metric."),
    ] = None,
    out: shared.OutFolder = None,
    jobs: shared.Jobs = None,
    executor: shared.Executor = "processes",
    device: shared.Device = "cpu",
    together: Together = None,
    resume: shared.Resume = False,
    overwrite: shared.Overwrite = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs.")] = False,
    probe: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", help="Measure first runs so long, to tell the time it will take; 0: no."
        ),
    ] = 3.0,
    set_: shared.Set = None,
) -> None:
    """Try settings of policies, and report the best of each.

    Settings are tried on some seeds; the best of each policy is then run on others, so that the choice
    does not flatter. A setting that diverges counts as worst. --resume goes on with a sweep, also with
    another grid: runs that are there are not run again.
    """
    from fedpace.runs.comparison.compare import Progress, follow_comparison
    from fedpace.runs.comparison.sweep import SweepStage, run_sweep
    from fedpace.runs.comparison.sweep_plan import with_choice

    options = {"compare.policies": shared.policy_labels(policies), "train.together": together}
    given: dict[str, Any] = {
        "seeds": seeds,
        "choose_seeds": choose_seeds,
        "targets": target or None,
        "at_hours": at_hours,
        "metric": metric,
        "by": by,
    }
    base = shared.load_config(config, shared.with_options(set_, options))
    settings = with_choice(base, given, parse_grid(grid or []))
    folder = out or shared.run_folder(f"{settings.name} sweep")
    if dry_run:
        _list_runs(settings, folder)
        return
    with running() as board:

        def follow(stage: SweepStage) -> Progress:
            shared.say_aside(describe_stage(stage))
            before = len(board.runs)
            progress = follow_comparison(board, stage.config)
            board.total += before
            return progress

        found = run_sweep(
            settings,
            folder,
            jobs=shared.parse_jobs(jobs),
            device=device,
            executor=executor,
            resume=resume,
            overwrite=overwrite,
            probe_s=probe,
            on_stage=follow,
        )
    from fedpace.report.sweep.show import show_sweep

    show_sweep(found.record, folder, Console())
    aims, same = found.record.criterion, settings.compare
    targets = aims.targets or (same.targets if aims.metric == same.metric else ())
    shared.show_report(found.reported.groups, folder, targets, settings.name, aims.metric)
    end_with_failures(found.failed)


def parse_grid(options: Sequence[str]) -> dict[str, list[Any]]:
    """Values by key of options such as train.lr=0.05,0.1; values are read as TOML, else as text."""
    found: dict[str, list[Any]] = {}
    for option in options:
        key, equals, text = option.partition("=")
        key = key.strip()
        if not equals or not key or not text.strip():
            raise ConfigError(f"--grid {option!r}: write it as key=a,b,c, such as train.lr=0.05,0.1")
        if key in found:
            raise ConfigError(f"--grid has {key!r} twice; give all of its values in one")
        try:
            found[key] = list(configs.toml_value(f"[{text}]"))
        except ValueError:
            found[key] = [_one_value(part.strip()) for part in text.split(",")]
    return found


def _one_value(text: str) -> Any:
    try:
        return configs.toml_value(text)
    except ValueError:
        return text


def describe_stage(stage: Any) -> str:
    """A line about a part of a sweep that begins."""
    done = stage.runs - stage.left
    left = f"{stage.left} of {stage.runs} runs left" if done else f"{stage.runs} runs"
    if stage.name == "report":
        return f"report: {left}, of the chosen settings"
    time = "" if stage.estimate is None else f"; the sweep will take {stage.estimate}"
    return f"choose: {left}, {stage.jobs} at a time{time}"


def _list_runs(settings: Config, folder: Path) -> None:
    """Say which runs a sweep would have, and how many of them are there."""
    from fedpace.report.sweep.record import SweepRecord
    from fedpace.report.sweep.table import seeds_text
    from fedpace.runs.comparison.sweep import runs_left
    from fedpace.runs.comparison.sweep_plan import plan_sweep

    plan = plan_sweep(settings, SweepRecord.read(folder))
    record, entries = plan.record, plan.choice_entries(folder)
    left = runs_left(entries)
    for cell in record.cells:
        own = sum(entry.label == cell.label for entry in left)
        done = len(record.choose_seeds) - own
        there = f" ({done} there)" if done else ""
        shared.say(f"{cell.policy}: {cell.setting}; {seeds_text(record.choose_seeds)}{there}")
    policies = len(record.policies)
    shared.say(
        f"{len(entries)} runs to choose by {record.criterion.words(None)}: {len(record.cells)} "
        f"settings x {len(record.choose_seeds)} seeds, {len(left)} of them to be run; then "
        f"{policies * len(record.seeds)} to report: {policies} policies x {seeds_text(record.seeds)}"
    )
