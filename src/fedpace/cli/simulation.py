"""`fedpace run | compare | report | replay`: simulated runs, and what their journals say."""

import shlex
import signal
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception
from typing import Annotated

import typer
from rich.console import Console

from fedpace.cli import shared
from fedpace.core.errors import ConfigError, FedpaceError, unknown
from fedpace.core.host import write_whole
from fedpace.learn.phases import PhaseClock
from fedpace.runs import config as configs
from fedpace.runs import plugins
from fedpace.runs.comparison.workers import Entry
from fedpace.runs.progress.bars import open_display
from fedpace.runs.progress.board import ProgressBoard
from fedpace.runs.stopping import StoppedBySignal

Together = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help='Same as --set train.together=METHOD: "by kind", "one by one" or stacked.',
    ),
]


class StoppedByUser(Exception):
    """Ctrl-C or SIGTERM in a run. code: the exit status that shells expect."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def run(
    config: shared.ConfigFile,
    policy: shared.PolicyLabel = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.")] = None,
    out: shared.OutFolder = None,
    workers: Annotated[int, typer.Option(help="Processes that train; results do not change.")] = 1,
    executor: shared.Executor = "processes",
    device: shared.Device = "cpu",
    together: Together = None,
    timing_only: Annotated[
        bool, typer.Option("--timing-only", help="No training: time alone.")
    ] = False,
    resume: shared.Resume = False,
    overwrite: shared.Overwrite = False,
    snapshot_every: Annotated[float, typer.Option(help="Real seconds between snapshots.")] = 60.0,
    track: shared.TrackTo = None,
    timings: Annotated[
        bool, typer.Option("--timings", help="Say where the seconds to the first round went.")
    ] = False,
    set_: shared.Set = None,
) -> None:
    """Simulate one policy.

    Journal, weights, table, figure and page (report.html) go to the folder. Exit status 3 where
    training has diverged, 4 where no update was ever used. Ctrl-C saves the run's state first; --resume
    goes on, also with a run that is over, if stop.rounds or another end is set further off.
    """
    clock = PhaseClock.of_process()
    with clock.phase("imports"):
        from fedpace.runs.simulate import simulate_run

    options = {
        "seed": seed,
        "timing_only": timing_only or None,
        "train.together": together,
        "track.to": track,
    }
    settings = shared.load_config(config, shared.with_options(set_, options))
    label = policy or settings.policy
    folder = out or shared.run_folder(settings.name, label, f"seed-{settings.seed}")
    stop = configs.policy_plan(settings, label).stop
    shared.say_trackers(settings, folder)
    with running() as board:
        result = simulate_run(
            settings,
            policy=label,
            out=folder,
            workers=workers,
            executor=executor,
            device=device,
            resume=resume,
            overwrite=overwrite,
            snapshot_every_s=snapshot_every,
            watches=(board.watch(label, stop),),
            clock=clock,
        )
    aims = settings.compare
    shared.show_report({label: [result.summary]}, folder, aims.targets, settings.name, aims.metric)
    if timings:
        shared.say(clock.describe())
    shared.end_if_diverged(result.summary)
    shared.end_if_nothing_happened([result.summary])


def compare(
    config: shared.ConfigFile,
    policies: shared.PolicyLabels = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each policy, with paired seeds.")] = None,
    out: shared.OutFolder = None,
    jobs: shared.Jobs = None,
    executor: shared.Executor = "processes",
    device: shared.Device = "cpu",
    together: Together = None,
    resume: shared.Resume = False,
    overwrite: shared.Overwrite = False,
    track: shared.TrackTo = None,
    set_: shared.Set = None,
) -> None:
    """Simulate several policies on the same data, fleet and seeds.

    The table shows them side by side. A run that diverges is a result. One that fails leaves the
    others alone; the exit status is 2 then, and 4 where a run ended without an update.
    """
    from fedpace.runs.comparison.compare import compare as run_all
    from fedpace.runs.comparison.compare import follow_comparison
    from fedpace.runs.comparison.grid import expand_grid

    options = {
        "compare.policies": shared.policy_labels(policies),
        "compare.seeds": seeds,
        "train.together": together,
        "track.to": track,
    }
    settings, cells = expand_grid(shared.load_config(config, shared.with_options(set_, options)))
    folder = out or shared.run_folder(settings.name)
    shared.say_trackers(settings, folder)
    with running() as board:
        found = run_all(
            settings,
            folder,
            jobs=shared.parse_jobs(jobs),
            device=device,
            executor=executor,
            resume=resume,
            overwrite=overwrite,
            progress=follow_comparison(board, settings),
        )
    aims = settings.compare
    shared.show_report(found.groups, folder, aims.targets, settings.name, aims.metric, cells)
    end_with_failures(found.failed)
    shared.end_if_nothing_happened(run for runs in found.groups.values() for run in runs)


def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of one run or of several.")],
    target: Annotated[
        list[float] | None, typer.Option(help="Value of the metric whose time is shown.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="What targets and figure are of [as last time].")
    ] = None,
    first: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Labels in front; times are relative to the first."),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="csv|latex|markdown|json",
            help="Print the table alone, so, and write no report [by the name of --out].",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write that table there.")
    ] = None,
    mix: Annotated[
        bool, typer.Option("--mix", help="Also runs of other tasks, data, fleets or seeds together.")
    ] = False,
) -> None:
    """Report the runs of a folder: table, figure, page and JSON.

    All journals below the folder count, also of runs that are not over. Runs of other tasks, data,
    fleets or seeds are not mixed unless --mix is given.
    """
    from fedpace.report.collection import collect_runs, default_targets, gone_runs, last_report_options
    from fedpace.report.sweep.record import SweepRecord
    from fedpace.report.sweep.show import show_sweep
    from fedpace.report.tables.formats import find_format, render_table

    kind = None if format_ is None and out is None else find_format(format_, out)

    before, asked = last_report_options(folder), shared.split_names(first or "")
    groups = collect_runs(folder, asked or tuple(before.runs), mix)
    for label in asked:
        if label not in groups:
            raise unknown("label", label, groups)
    for line in gone_runs(before, groups):
        (shared.say if kind is None else shared.say_aside)(line)
    same = metric in (None, before.metric)  # targets of another metric mean nothing for this one
    targets = target or (before.targets if same else ())
    metric = metric or before.metric
    if kind is not None:
        targets = targets or default_targets(groups, metric)
        _give_table(render_table(kind, groups, targets, metric), out)
        return
    if (record := SweepRecord.read(folder)) is not None and record.chosen:
        show_sweep(record, folder, Console())
    shared.show_report(groups, folder, targets, before.title, metric, before.cells)


def _give_table(text: str, out: Path | None) -> None:
    if out is None:
        typer.echo(text, nl=False)
        return
    try:
        write_whole(out, text)
    except OSError as error:
        raise ConfigError(f"{out} cannot be written: {error.strerror}; give another file") from error


def replay(
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL", help="A journal.jsonl, or its folder.")],
) -> None:
    """Check that a journal's policy gives its commands again.

    The events of the journal are fed to a fresh policy of the same settings.
    """
    sys.path.insert(0, str(Path.cwd()))
    from fedpace.core.journal import JOURNAL, read
    from fedpace.core.journal import replay as check

    path = journal / JOURNAL if journal.is_dir() else journal
    header, _ = read(path)
    kind = plugins.load("policies", header.policy)
    check(path, kind(configs.build(kind.Settings, header.settings, "settings"), header.context))
    shared.say(f"{path}: the policy gives the same commands again")


def end_with_failures(failed: Mapping[Entry, Exception]) -> None:
    """Say which runs failed, how to go on with them, and so by the exit status."""
    from fedpace.runs.comparison.compare import describe_failure

    if not failed:
        return
    for entry, error in failed.items():
        shared.complain(describe_failure(entry, error))
        if not isinstance(error, FedpaceError | OSError | BrokenProcessPool):
            shared.complain("".join(format_exception(error)))  # a bug
    shared.complain(
        f"{len(failed)} runs failed and are not in the table; go on with: {_resume_command()}"
    )
    raise typer.Exit(2)


@contextmanager
def running() -> Iterator[ProgressBoard]:
    """Progress of something long; Ctrl-C in it is no error."""
    try:
        with ProgressBoard(open_display()) as board:
            yield board
    except KeyboardInterrupt as stop:
        number = stop.number if isinstance(stop, StoppedBySignal) else signal.SIGINT
        where = str(stop) or "stopped"
        raise StoppedByUser(f"{where}; go on with: {_resume_command()}", 128 + number) from None


def _resume_command() -> str:
    """The command of this process, to go on with what it leaves."""
    arguments = [one for one in sys.argv[1:] if one not in ("--overwrite", "--resume")]
    return shlex.join(["fedpace", *arguments, "--resume"])
