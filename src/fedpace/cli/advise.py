"""`fedpace advise`: which policy, with which settings, for a fleet, its data and an aim."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedpace.cli import shared


def advise(
    config: shared.ConfigFile,
    aim: Annotated[
        str | None,
        typer.Option(
            metavar="time|money|bytes|value|fairness",
            help="Rank by the least of it to the target, or by the best metric, or that of the "
            "worst-served clients, at the end [time with a target, else value].",
        ),
    ] = None,
    target: Annotated[
        float | None, typer.Option(help="Value of the metric to be reached [last of compare.targets].")
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(help="Length of the runs that the advice is for, on their clock [config's end]."),
    ] = None,
    money: Annotated[
        float | None, typer.Option(help="What those runs may spend [budget.money].")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="What target and value are of [compare.metric].")
    ] = None,
    policies: shared.PolicyLabels = None,
    at_once: Annotated[
        int | None, typer.Option(help="Clients that may train at the same time [all].")
    ] = None,
    out: shared.OutFolder = None,
    jobs: shared.Jobs = None,
    overwrite: shared.Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print advice.json instead of text.")] = False,
    set_: shared.Set = None,
) -> None:
    """Say what every policy would do with this fleet, data and aim.

    All policies are timed over a small range of their settings, without training: how often the model
    steps, who takes part, how stale updates are, whose data counts how much, what is idle, thrown away,
    moved and paid. The folder has advice.json, advice.md and advised.toml, which runs the first.
    """
    from fedpace.advice.aims import find_aim
    from fedpace.advice.front import check_free, screen_candidates, timing_advice

    settings = shared.load_config(config, set_ or ())
    folder = out or shared.run_folder(f"{settings.name} advice")
    check_free(folder, overwrite)
    wanted = find_aim(settings, aim, target, hours, money, metric)
    with Console(stderr=True).status("reading data") as status:
        screen = screen_candidates(
            settings,
            wanted,
            shared.policy_labels(policies),
            at_once,
            shared.parse_jobs(jobs),
            status.update,
        )
    found = timing_advice(screen)
    found.write(folder)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1))
    else:
        from fedpace.advice.text import advice_text

        shared.say(advice_text(found, max(Console().width, 60)))
        _say_files(folder, bool(found.config))


def _say_files(folder: Path, has_config: bool) -> None:
    shared.say(f"\nAll of it: {folder / 'advice.md'} and advice.json")
    if has_config:
        shared.say(f"Run the first: fedpace run {folder / 'advised.toml'}")
