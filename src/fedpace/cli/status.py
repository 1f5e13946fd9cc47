"""`fedpace status`: clients of a federation, their tasks, and what its run waits for."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedpace.cli.federation import Insecure, Keys, ServerAddress, client_keys
from fedpace.core.errors import ConfigError, PeerError, needs_extra

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from fedpace.net import federation_pb2 as pb

_COLUMNS = ("client", "state", "doing", "age", "late", "seen", "s a batch", "s down", "s up", "updates")


def status(
    address: ServerAddress,
    keys: Keys = None,
    insecure: Insecure = False,
    watch: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Ask again this often, until Ctrl-C.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; with --watch an object a line.")
    ] = False,
) -> None:
    """Show a federation's clients, their tasks and its progress.

    Also what it waits for.
    Everybody is shown to an operator's keys, a client's show itself.
    """
    if watch is not None and not watch > 0:
        raise ConfigError(f"--watch is {watch:g}; give seconds above 0")
    with needs_extra("net"):
        from fedpace.runs.federation import ask_status
    shown = client_keys(keys, insecure)

    def ask() -> "pb.StatusReply":
        return asyncio.run(ask_status(address, shown))

    if as_json:
        _print_json(ask, watch)
    elif watch is None:
        Console().print(status_table(ask()))
    else:
        _show_live(ask, watch)


def _print_json(ask: "Callable[[], pb.StatusReply]", watch: float | None) -> None:
    typer.echo(json.dumps(plain_message(ask()), indent=2 if watch is None else None))
    while watch is not None:
        time.sleep(watch)
        try:
            found = plain_message(ask())
        except PeerError as error:  # the server may be back soon
            found = {"error": str(error)}
        typer.echo(json.dumps(found))


def _show_live(ask: "Callable[[], pb.StatusReply]", watch: float) -> None:
    shown = status_table(ask())
    with Live(shown, console=Console(), auto_refresh=False) as live:
        while True:
            time.sleep(watch)
            try:
                shown = status_table(ask())
                live.update(shown, refresh=True)
            except PeerError as error:  # the server may be back soon
                live.update(Group(shown, Text(f"! {error}", style="red")), refresh=True)


def plain_message(message: "Message") -> dict[str, Any]:
    """A message as JSON has it, every field by its name; protobuf's own form has numbers as text."""
    found = dict[str, Any]()
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is None:
            found[field.name] = value if isinstance(value, str | int | float) else list(value)
        else:
            found[field.name] = [plain_message(one) for one in value]
    return found


def status_table(reply: "pb.StatusReply") -> Group:
    """An answer for people."""
    tested = f", {reply.tested}" if reply.tested else ""
    head = f"{reply.name}: {reply.policy}, {reply.state}, round {reply.round}, "
    head += f"{reply.now_s:.0f} s{tested}"
    table = Table(*_COLUMNS, "refused", box=None)
    for one in reply.clients:
        seen = f"{one.last_seen_s:.1f} s ago" if one.last_seen_s >= 0 else "-"
        speeds = [f"{s:.3g}" if s else "-" for s in (one.batch_s, one.down_s, one.up_s)]
        age = f"{one.task_age_s:.1f} s" if one.task else "-"
        late = Text(f"{one.late_s:.1f} s" if one.late_s else "-", style="yellow" if one.late_s else "")
        refused = Text(str(one.refused), style="red" if one.refused else "")
        updates = str(one.updates)
        table.add_row(one.name, one.state, one.doing, age, late, seen, *speeds, updates, refused)
    return Group(Text(head), table, *_notes(reply))


def _notes(reply: "pb.StatusReply") -> list[Text]:
    notes = []
    for one in reply.hold_ups:
        late = f", {one.late_s:.0f} s late" if one.late_s else ""
        notes.append(Text(f"waits for {one.name}{late}: {one.why}" if one.name else one.why))
    for row in reply.clients:
        if row.last_refusal:
            ago = f"{row.refused_ago_s:.0f} s ago"
            notes.append(Text(f"{row.name} was refused {ago}: {row.last_refusal}", style="red"))
    notes += [Text(f"! {warning}", style="yellow") for warning in reply.warnings]
    if reply.own_only:
        notes.append(Text("these keys are a client's, and show itself; an operator's show everybody"))
    return notes
