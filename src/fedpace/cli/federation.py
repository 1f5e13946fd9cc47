"""`fedpace serve | join | status`: a federation over a network."""

import asyncio
import logging
import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedpace.core.errors import ConfigError, needs_extra
from fedpace.runs import config as configs

if TYPE_CHECKING:
    from fedpace.net.keys.gate import ClientKeys, Gate
    from fedpace.runs.simulate import Result

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
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Say more.")]


def serve(
    settings: configs.Config,
    listen: str,
    keys: Path | None,
    auth: str,
    insecure: bool,
    anywhere: bool,
    policy: str,
    task: str | None,
    out: Path,
    device: str,
    resume: bool,
    overwrite: bool,
) -> "Result | None":
    """The result of a served run; None where it was stopped."""
    with needs_extra("net"):
        from fedpace.runs.federation import find_task
        from fedpace.runs.federation import serve as run
    gate = _gate(keys, auth, insecure)
    return run(
        settings,
        listen,
        gate=gate,
        out=out,
        task=None if task is None else find_task(_local(task), "server"),
        policy=policy,
        device=device,
        resume=resume,
        overwrite=overwrite,
        anywhere=anywhere,
    )


def join(
    address: str,
    name: str | None,
    task: str | None,
    keys: Path | None,
    insecure: bool,
    device: str,
    slower: float,
    threads: int,
    patience: float | None,
) -> None:
    """Take part until it is over."""
    with needs_extra("net"):
        from fedpace.runs.federation import find_task
        from fedpace.runs.federation import join as take_part
    if task is None:
        raise ConfigError("--task is not set; name a function that returns this client's fedpace Task")
    shown = _client_keys(keys, insecure)
    known = name or (None if shown is None else shown.name)
    if known is None:
        raise ConfigError("--name is not set; give the name that the server is to know this client by")
    made = find_task(_local(task), known)
    reason = take_part(
        address,
        known,
        made,
        keys=shown,
        device=device,
        slower=slower,
        threads=threads or None,
        patience_s=math.inf if patience is None else patience,
    )
    Console().print(f"over: {reason}")


def status(address: str, keys: Path | None, insecure: bool, watch: float | None) -> None:
    """Print what the server says, once or again and again."""
    with needs_extra("net"):
        from fedpace.runs.federation import ask_status
    shown = _client_keys(keys, insecure)

    def drawn() -> Group:
        return _drawn(asyncio.run(ask_status(address, shown)))

    console = Console()
    if watch is None:
        console.print(drawn())
        return
    with Live(drawn(), console=console, auto_refresh=False) as live:
        while True:
            time.sleep(watch)
            live.update(drawn(), refresh=True)


def say(verbose: bool) -> None:
    """Logs that an operator can read, on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S"))
    logger = logging.getLogger("fedpace")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)


def _gate(keys: Path | None, auth: str, insecure: bool) -> "Gate":
    from fedpace.net.keys.gate import Gate

    if insecure:
        if keys is not None:
            raise ConfigError("--keys and --insecure are both given; choose one")
        return Gate.insecure()
    if auth not in ("certificate", "token"):
        raise ConfigError(f"--auth is {auth!r}; set it to certificate or token")
    return Gate.open(keys or Path("keys"), "token" if auth == "token" else "certificate")


def _client_keys(keys: Path | None, insecure: bool) -> "ClientKeys | None":
    from fedpace.net.keys.gate import ClientKeys

    if insecure:
        if keys is not None:
            raise ConfigError("--keys and --insecure are both given; choose one")
        return None
    return ClientKeys.open(keys or Path("keys"))


def _local(path: str) -> str:
    """Modules in this folder can be named."""
    sys.path.insert(0, str(Path.cwd()))
    return path


def _drawn(reply: Any) -> Group:
    accuracy = f", accuracy {reply.accuracy:.3f}" if reply.HasField("accuracy") else ""
    head = f"{reply.name}: {reply.policy}, {reply.state}, round {reply.round}, "
    head += f"{reply.now_s:.0f} s{accuracy}"
    columns = ("client", "state", "doing", "seen", "s a batch", "s down", "s up", "updates", "refused")
    table = Table(*columns, box=None)
    for one in reply.clients:
        seen = f"{one.last_seen_s:.1f} s ago" if one.last_seen_s >= 0 else "-"
        speeds = [f"{s:.3g}" if s else "-" for s in (one.batch_s, one.down_s, one.up_s)]
        refused = Text(str(one.refused), style="red" if one.refused else "")
        table.add_row(one.name, one.state, one.doing, seen, *speeds, str(one.updates), refused)
    return Group(Text(head), table)
