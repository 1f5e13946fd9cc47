"""`fedpace serve | join | drain | expel | stop`: a federation over a network."""

import asyncio
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpace.cli import shared
from fedpace.cli.keys import read_join_token
from fedpace.core.errors import ConfigError, needs_extra
from fedpace.runs.logs import set_up_logs

if TYPE_CHECKING:
    from fedpace.net.keys.gate import ClientKeys, Gate

Keys = Annotated[
    Path | None, typer.Option("--keys", metavar="DIR", help="Folder with keys, see `fedpace keys`.")
]
Insecure = Annotated[
    bool, typer.Option("--insecure", help="No keys and no encryption; on this machine only.")
]
TaskPath = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="MODULE:FACTORY",
        help="A function that returns a fedpace Task; one with a parameter `name` is told the name.",
    ),
]
ServerAddress = Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the server listens.")]
MemberName = Annotated[str, typer.Argument(metavar="NAME", help="The member's name.")]
Reason = Annotated[str | None, typer.Option(metavar="TEXT", help="Why, for log and audit.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]
LogFormat = Annotated[
    str, typer.Option("--log", metavar="text|json", help="Logs on stderr: for people, or for programs.")
]


def serve(
    config: shared.ConfigFile,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0: any that is free.")
    ] = "127.0.0.1:8850",
    policy: shared.PolicyLabel = None,
    task: TaskPath = None,
    keys: Keys = None,
    auth: Annotated[
        str, typer.Option(metavar="certificate|token", help="How clients prove who they are.")
    ] = "certificate",
    insecure: Insecure = False,
    anywhere: Annotated[
        bool, typer.Option("--anywhere", help="With --insecure: let other machines in all the same.")
    ] = False,
    out: shared.OutFolder = None,
    device: Annotated[str, typer.Option(metavar="cpu|cuda|cuda:N", help="Where models are tested.")] = (
        "cpu"
    ),
    resume: shared.Resume = False,
    overwrite: shared.Overwrite = False,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve /healthz, /readyz and Prometheus's /metrics there, on 127.0.0.1 unless a host "
            "is given [serve.metrics of the config, or not at all].",
        ),
    ] = None,
    page: Annotated[
        str | None,
        typer.Option(
            metavar="[HOST:]PORT",
            help="Serve the run's page to operators there, on 127.0.0.1 unless a host is given; see "
            "`fedpace page` [serve.page of the config, or not at all].",
        ),
    ] = None,
    log: LogFormat = "text",
    verbose: Verbose = False,
    track: shared.TrackTo = None,
    set_: shared.Set = None,
) -> None:
    """Train over a network: wait for clients, then run a policy."""
    set_up_logs(log, verbose)
    overrides = list(set_ or [])
    if track is not None:
        overrides.append(f"track.to={json.dumps(track)}")
    settings = shared.load_config(config, overrides)
    label = policy or settings.policy
    folder = out or shared.run_folder(settings.name, label, "served")
    with needs_extra("net"):
        from fedpace.runs import federation
    gate = _gate(keys, auth, insecure)
    shared.say_trackers(settings, folder)
    result = federation.serve(
        settings,
        listen,
        gate=gate,
        out=folder,
        task=None if task is None else federation.find_task(_importable(task), "server"),
        policy=label,
        device=device,
        resume=resume,
        overwrite=overwrite,
        anywhere=anywhere,
        metrics=metrics,
        page=page,
    )
    if result is None:
        again = f"fedpace serve {config} --out {folder} --resume"
        typer.echo(f"stopped; go on with the same options and --resume: {again}")
        return
    aims = settings.compare
    shared.show_report({label: [result.summary]}, folder, aims.targets, settings.name, aims.metric)
    shared.end_if_diverged(result.summary)
    shared.end_if_nothing_happened([result.summary])


def join(
    address: ServerAddress,
    task: TaskPath = None,
    name: Annotated[str | None, typer.Option(help="This client's name [the one in its keys].")] = None,
    keys: Keys = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="FEDPACE_JOIN_TOKEN",
            metavar="TOKEN",
            help="A join token, or @FILE with one, to get keys first; unused where there are some.",
        ),
    ] = None,
    insecure: Insecure = False,
    device: shared.Device = "cpu",
    threads: Annotated[int, typer.Option(help="Of torch; 0: as torch decides.")] = 1,
    slower: Annotated[
        float, typer.Option(help="Train as a machine that takes so many times longer; for trials.")
    ] = 1.0,
    patience: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Give up when no server answered for so long [never]."),
    ] = None,
    log: LogFormat = "text",
    verbose: Verbose = False,
) -> None:
    """Take part in a federation with this machine's own data."""
    set_up_logs(log, verbose)
    with needs_extra("net"):
        from fedpace.runs import federation
    if task is None:
        raise ConfigError("--task is not set; name a function that returns this client's fedpace Task")
    if token is not None:
        if insecure:
            raise ConfigError("--token and --insecure are both given; choose one")
        patience_s = math.inf if patience is None else patience
        federation.enrol(address, read_join_token(token), keys or Path("keys"), patience_s)
    shown = client_keys(address, keys, insecure)
    known = name or (None if shown is None else shown.name)
    if known is None:
        raise ConfigError("--name is not set; give the name that the server is to know this client by")
    made = federation.find_task(_importable(task), known)
    reason = federation.join(
        address,
        known,
        made,
        keys=shown,
        device=device,
        slower=slower,
        threads=threads or None,
        patience_s=math.inf if patience is None else patience,
    )
    shared.say(f"over: {reason}")


def drain(address: ServerAddress, name: MemberName, keys: Keys = None, reason: Reason = None) -> None:
    """Let a client end the tasks that it has and leave.

    Such as before its machine is switched off.
    """
    _order(address, keys, drain=name, reason=reason or "")


def expel(address: ServerAddress, name: MemberName, keys: Keys = None, reason: Reason = None) -> None:
    """Revoke a member's keys from afar.

    It is cut off at once, and does not come back.
    """
    _order(address, keys, expel=name, reason=reason or "")


def stop(address: ServerAddress, keys: Keys = None, reason: Reason = None) -> None:
    """Stop a server, which saves its models first.

    It goes on with `fedpace serve --resume`.
    """
    _order(address, keys, stop=True, reason=reason or "")


def _order(address: str, keys: Path | None, **order: Any) -> None:
    """Have an operator's order carried out."""
    with needs_extra("net"):
        from fedpace.net import federation_pb2 as pb
        from fedpace.runs.federation import give_order
    shown = client_keys(address, keys)
    shared.say(asyncio.run(give_order(address, shown, pb.OperateRequest(**order))))


def _gate(keys: Path | None, auth: str, insecure: bool) -> "Gate":
    from fedpace.net.keys.gate import Gate

    folder = _key_folder(keys, insecure)
    if folder is None:
        return Gate.insecure()
    if auth not in ("certificate", "token"):
        raise ConfigError(f"--auth is {auth!r}; set it to certificate or token")
    return Gate.open(folder, "token" if auth == "token" else "certificate")


def client_keys(address: str, keys: Path | None, insecure: bool = False) -> "ClientKeys | None":
    """Keys to show at an address, which is looked at before them."""
    from fedpace.net.client import check_address
    from fedpace.net.keys.gate import ClientKeys

    check_address(address)
    folder = _key_folder(keys, insecure)
    return None if folder is None else ClientKeys.open(folder)


def _key_folder(keys: Path | None, insecure: bool) -> Path | None:
    """The folder with keys; None where there are to be none."""
    if insecure and keys is not None:
        raise ConfigError("--keys and --insecure are both given; choose one")
    return None if insecure else keys or Path("keys")


def _importable(path: str) -> str:
    """Let modules in the current folder be named."""
    sys.path.insert(0, str(Path.cwd()))
    return path
