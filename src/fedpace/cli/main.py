"""The command line: `fedpace run | compare | report | replay`, and what there is to choose from:
`policies | tasks | fleets | settings | data`; `plan` answers without a run. `serve | join | status |
keys` are for real networks.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedpace.cli import data as data_cli
from fedpace.cli import federation as net_cli
from fedpace.cli import keys as keys_cli
from fedpace.cli import listing
from fedpace.cli import plan as plan_cli
from fedpace.cli.progress import ProgressBars
from fedpace.core.errors import ConfigError, FedpaceError
from fedpace.report.summary import Summary
from fedpace.runs import config as configs
from fedpace.runs import plugins

app = typer.Typer(
    help="Federated learning on machines of very different speed: work is fitted to time.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data_cli.app, name="data")
app.add_typer(plan_cli.app, name="plan")
app.add_typer(keys_cli.app, name="keys")

ConfigFile = Annotated[Path, typer.Argument(metavar="CONFIG.toml", help="The run's configuration.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a setting, such as stop.rounds=50; policies' own values too.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with what the folder holds.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Delete what the folder holds first.")]
Device = Annotated[str, typer.Option(metavar="cpu|cuda|cuda:N", help="Where clients train.")]
Together = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD",
        help='Same as --set train.together=METHOD: "by kind", "one by one" or stacked.',
    ),
]


@app.command()
def run(
    config: ConfigFile,
    policy: Annotated[str | None, typer.Option(help="Label in [policies] or a policy's name.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all randomness.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results [below runs/].")] = None,
    workers: Annotated[int, typer.Option(help="Processes that train; results do not change.")] = 1,
    executor: Annotated[
        str, typer.Option(metavar="processes|ray", help="Whose they are: this machine's, a cluster's.")
    ] = "processes",
    device: Device = "cpu",
    together: Together = None,
    timing_only: Annotated[
        bool, typer.Option("--timing-only", help="No training: time alone.")
    ] = False,
    resume: Resume = False,
    overwrite: Overwrite = False,
    snapshot_every: Annotated[float, typer.Option(help="Real seconds between snapshots.")] = 60.0,
    set_: Set = None,
) -> None:
    """Simulate one policy; journal, weights, table and figure go to the folder."""
    from fedpace.runs.simulate import simulate

    overrides = list(set_ or [])
    if seed is not None:
        overrides.append(f"seed={seed}")
    if timing_only:
        overrides.append("timing_only=true")
    if together is not None:
        overrides.append(f"train.together={json.dumps(together)}")
    settings = _load(config, overrides)
    label = policy or settings.policy
    folder = out or Path("runs") / _slug(settings.name) / _slug(label) / f"seed-{settings.seed}"
    stop = configs.policy_plan(settings, label).stop
    with _running() as bars:
        result = simulate(
            settings,
            policy=label,
            out=folder,
            workers=workers,
            executor=executor,
            device=device,
            resume=resume,
            overwrite=overwrite,
            snapshot_every_s=snapshot_every,
            watches=(bars.of(label, stop),),
        )
    _show({label: [result.summary]}, folder, settings.compare.targets, settings.name)


@app.command()
def compare(
    config: ConfigFile,
    policies: Annotated[str | None, typer.Option(metavar="A,B,C", help="Labels or names.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each policy, with paired seeds.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results [below runs/].")] = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at the same time [one a core, 4 on a GPU].")
    ] = None,
    device: Device = "cpu",
    together: Together = None,
    resume: Resume = False,
    overwrite: Overwrite = False,
    set_: Set = None,
) -> None:
    """Simulate several policies on the same data, fleet and seeds, and show them side by side."""
    from fedpace.runs.compare import compare as run_all

    overrides = list(set_ or [])
    if policies is not None:
        labels = _names(policies)
        if not labels:
            raise ConfigError("--policies names nobody; give labels or names, such as timelyfl,sync")
        overrides.append(f"compare.policies={json.dumps(labels)}")
    if seeds is not None:
        overrides.append(f"compare.seeds={seeds}")
    if together is not None:
        overrides.append(f"train.together={json.dumps(together)}")
    settings = _load(config, overrides)
    folder = out or Path("runs") / _slug(settings.name)
    with _running() as bars:
        groups = run_all(
            settings,
            folder,
            jobs=jobs,
            device=device,
            resume=resume,
            overwrite=overwrite,
            progress=bars.follow(settings),
        )
    _show(groups, folder, settings.compare.targets, settings.name)


@app.command()
def serve(
    config: ConfigFile,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: any that is free.")
    ] = "127.0.0.1:8850",
    policy: Annotated[str | None, typer.Option(help="Label in [policies] or a policy's name.")] = None,
    task: net_cli.TaskPath = None,
    keys: net_cli.Keys = None,
    auth: Annotated[
        str, typer.Option(metavar="certificate|token", help="How clients prove who they are.")
    ] = "certificate",
    insecure: net_cli.Insecure = False,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="With --insecure: let other machines in all the same.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the results [below runs/].")] = None,
    device: Annotated[str, typer.Option(metavar="cpu|cuda|cuda:N", help="Where models are tested.")] = (
        "cpu"
    ),
    resume: Resume = False,
    overwrite: Overwrite = False,
    verbose: net_cli.Verbose = False,
    set_: Set = None,
) -> None:
    """Train over a network: wait for clients, then run one policy with them."""
    net_cli.say(verbose)
    settings = _load(config, list(set_ or []))
    label = policy or settings.policy
    folder = out or Path("runs") / _slug(settings.name) / _slug(label) / "served"
    result = net_cli.serve(
        settings, listen, keys, auth, insecure, anywhere, label, task, folder, device, resume, overwrite
    )
    if result is None:
        again = f"fedpace serve {config} --out {folder} --resume"
        typer.echo(f"stopped; go on with the same options and --resume: {again}")
        return
    _show({label: [result.summary]}, folder, settings.compare.targets, settings.name)


@app.command()
def join(
    address: net_cli.ServerAddress,
    task: net_cli.TaskPath = None,
    name: Annotated[str | None, typer.Option(help="This client's name [the one in its keys].")] = None,
    keys: net_cli.Keys = None,
    insecure: net_cli.Insecure = False,
    device: Device = "cpu",
    threads: Annotated[int, typer.Option(help="Of torch; 0: as torch decides.")] = 1,
    slower: Annotated[
        float, typer.Option(help="Train as a machine that takes so many times longer; for trials.")
    ] = 1.0,
    patience: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give up when no server answered for so long [never]."),
    ] = None,
    verbose: net_cli.Verbose = False,
) -> None:
    """Take part in a federation with this machine's own data, until it is over."""
    net_cli.say(verbose)
    net_cli.join(address, name, task, keys, insecure, device, slower, threads, patience)


@app.command()
def status(
    address: net_cli.ServerAddress,
    keys: net_cli.Keys = None,
    insecure: net_cli.Insecure = False,
    watch: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Ask again this often, until Ctrl-C.")
    ] = None,
) -> None:
    """Who is there, what they are doing, how far it is."""
    net_cli.status(address, keys, insecure, watch)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of one run or of several.")],
    target: Annotated[list[float] | None, typer.Option(help="Accuracy whose time is shown.")] = None,
    first: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Labels in front; times are relative to the first."),
    ] = None,
) -> None:
    """Table and figure (accuracy over time, clients a round, participation) from journals."""
    from fedpace.report.collection import collect_runs, last_report_options

    before = last_report_options(folder)
    groups = collect_runs(folder, _names(first or "") or before.labels)
    _show(groups, folder, target or before.targets, before.title)


@app.command()
def replay(
    journal: Annotated[Path, typer.Argument(metavar="JOURNAL", help="A journal.jsonl, or its folder.")],
) -> None:
    """Check that a journal's events, fed to a fresh policy, give the journal's commands."""
    sys.path.insert(0, str(Path.cwd()))
    from fedpace.core.journal import JOURNAL, read
    from fedpace.core.journal import replay as check

    path = journal / JOURNAL if journal.is_dir() else journal
    header, _ = read(path)
    kind = plugins.load("policies", header.policy)
    check(path, kind(configs.build(kind.Settings, header.settings, "settings"), header.context))
    Console().print(f"{path}: the policy gives the same commands again")


@app.command("policies")
def list_policies() -> None:
    """What schedules: each policy with its settings and their defaults."""
    listing.show("policies")


@app.command("tasks")
def list_tasks() -> None:
    """What is learned: each task with its settings and their defaults."""
    listing.show("tasks")


@app.command("fleets")
def list_fleets() -> None:
    """Who trains: each kind of fleet with its settings and their defaults."""
    listing.show("fleets")


@app.command("settings")
def list_settings() -> None:
    """Every other table of a config file with its keys and their defaults."""
    listing.show_config()


class _Stopped(Exception):
    """The user has stopped a run."""


@contextmanager
def _running() -> Iterator[ProgressBars]:
    """Progress bars around something long; Ctrl-C in it is no error."""
    try:
        with ProgressBars() as bars:
            yield bars
    except KeyboardInterrupt:
        raise _Stopped from None


def _load(config: Path, overrides: list[str]) -> configs.Config:
    """Read a config; own policies and tasks may lie beside it or in the current folder."""
    sys.path[:0] = [str(config.resolve().parent), str(Path.cwd())]
    return configs.load(config, overrides)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name.lower()).strip("-.") or "run"


def _show(
    groups: dict[str, list[Summary]], folder: Path, targets: Sequence[float], title: str | None
) -> None:
    from fedpace.report.collection import write_report

    write_report(groups, folder, targets, Console(), title)


def main() -> None:
    """Errors of the user or the machine are one line and exit code 2; only bugs show a traceback."""
    try:
        app()
    except _Stopped:
        _fail("stopped; go on with --resume", code=130)
    except FedpaceError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'the disk'}: {error.strerror or error}")


def _fail(message: str, code: int = 2) -> None:
    Console(stderr=True).print(f"fedpace: {message}", markup=False, highlight=False, soft_wrap=True)
    sys.exit(code)
