"""`fedpace advise`: which policy, with which settings, for a fleet, its data and an aim."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedpace.cli import shared
from fedpace.cli.simulation import running

NO_PILOTS = 4
"""Exit status where nothing could be trained, so that the order is that of the timings alone."""


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
        float | None,
        typer.Option(
            help="Value of the metric to be reached [last of compare.targets, else stop.target]."
        ),
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
    within: Annotated[
        str, typer.Option(metavar="TIME", help="Real time for pilots, such as 90s, 10m or 1h.")
    ] = "10m",
    timing_only: Annotated[
        bool, typer.Option("--timing-only", help="No pilots: say what timings alone say.")
    ] = False,
    policies: shared.PolicyLabels = None,
    at_once: Annotated[
        int | None, typer.Option(help="Clients that may train at the same time [all].")
    ] = None,
    out: shared.OutFolder = None,
    jobs: shared.Jobs = None,
    device: shared.Device = "cpu",
    resume: shared.Resume = False,
    overwrite: shared.Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print advice.json instead of text.")] = False,
    set_: shared.Set = None,
) -> None:
    """Say which policy to take for this fleet, data and aim.

    All policies are first timed over a small range of their settings, without training. The few that no
    other beats are then trained, in pilots that get longer while the worst are left out. The folder has
    advice.json, advice.md and advised.toml, which runs the first choice. Exit status 4 where there was
    no pilot, and the order is that of the timings alone.
    """
    from fedpace.advice.aims import find_aim, parse_within
    from fedpace.advice.front import open_advice, screen_candidates, train_pilots

    settings = shared.load_config(config, set_ or ())
    folder = out or shared.run_folder(f"{settings.name} advice")
    wanted = find_aim(settings, aim, target, hours, money, metric)
    within_s = 0.0 if timing_only else parse_within(within)
    labels, at_a_time = shared.policy_labels(policies), shared.parse_jobs(jobs)
    open_advice(folder, resume, overwrite)
    with Console(stderr=True).status("reading data") as status:
        screen = screen_candidates(settings, wanted, labels, at_once, at_a_time, status.update)
    with running() as board:
        found = train_pilots(
            screen, folder, within_s, jobs=at_a_time, device=device, board=board, say=shared.say_aside
        )
    found.write(folder)
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=1))
    else:
        from fedpace.advice.text import advice_text

        shared.say(advice_text(found, max(Console().width, 60)))
        _say_files(folder, bool(found.config))
    if found.verdict in ("timing only", "none") and not timing_only:
        raise typer.Exit(NO_PILOTS)


def _say_files(folder: Path, has_config: bool) -> None:
    shared.say(f"\nAll of it: {folder / 'advice.md'} and advice.json")
    if has_config:
        shared.say(f"Run the first: fedpace run {folder / 'advised.toml'}")
