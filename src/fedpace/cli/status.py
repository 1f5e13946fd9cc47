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
from typer.core import TyperCommand

from fedpace.cli.federation import Insecure, Keys, ServerAddress, client_keys
from fedpace.core.errors import ConfigError, PeerError, needs_extra
from fedpace.runs.progress.estimate import rate_text, short_time

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from fedpace.net import federation_pb2 as pb

WATCH_S = "2"
_COLUMNS = (
    *("client", "state", "doing", "age", "late", "seen", "s a batch", "s down", "s up"),
    *("updates", "refused"),
)
_LEFT_OUT = ("s down", "s up", "seen", "refused", "late", "s a batch", "updates", "age")
"""Columns that a narrow terminal does without, the first of them first; those without news before."""


def status(
    address: ServerAddress,
    keys: Keys = None,
    insecure: Insecure = False,
    watch: Annotated[
        float | None, typer.Option(metavar="[SECONDS]", help="Ask again this often [2], until Ctrl-C.")
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
    shown = client_keys(address, keys, insecure)

    def ask() -> "pb.StatusReply":
        return asyncio.run(ask_status(address, shown))

    if as_json:
        _print_json(ask, watch)
    elif watch is None:
        console = Console()
        console.print(status_table(ask(), console.width))
    elif (screen := Console()).is_terminal and not screen.is_dumb_terminal:
        _show_live(ask, watch, screen)
    else:
        _print_lines(ask, watch)


class StatusCommand(TyperCommand):
    """The command with `--watch` without its seconds, which typer does not know by itself."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for place in range(len(args) - 1, -1, -1):
            if args[place] == "--watch" and not _is_number("".join(args[place + 1 : place + 2])):
                args.insert(place + 1, WATCH_S)
        return super().parse_args(ctx, args)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _print_lines(ask: "Callable[[], pb.StatusReply]", watch: float) -> None:
    """Say in a pipe or a log where the run stands."""
    line = headline(ask())
    while True:
        typer.echo(line)
        time.sleep(watch)
        try:
            line = headline(ask())
        except PeerError as error:  # the server may be back soon
            line = f"! {error}"


def _print_json(ask: "Callable[[], pb.StatusReply]", watch: float | None) -> None:
    typer.echo(json.dumps(plain_message(ask()), indent=2 if watch is None else None))
    while watch is not None:
        time.sleep(watch)
        try:
            found = plain_message(ask())
        except PeerError as error:  # the server may be back soon
            found = {"error": str(error)}
        typer.echo(json.dumps(found))


def _show_live(ask: "Callable[[], pb.StatusReply]", watch: float, console: Console) -> None:
    shown = status_table(ask(), console.width)
    with Live(shown, console=console, auto_refresh=False) as live:
        while True:
            time.sleep(watch)
            try:
                shown = status_table(ask(), console.width)
                live.update(shown, refresh=True)
            except PeerError as error:  # the server may be back soon
                live.update(Group(shown, Text(f"! {error}", style="red")), refresh=True)


def plain_message(message: "Message") -> dict[str, Any]:
    """A message as JSON has it, every field by its name; protobuf's own form has numbers as text."""
    found = dict[str, Any]()
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.message_type is None:
            known = not field.has_presence or message.HasField(field.name)
            single = isinstance(value, str | int | float)
            found[field.name] = (value if known else None) if single else list(value)
        else:
            found[field.name] = [plain_message(one) for one in value]
    return found


def headline(reply: "pb.StatusReply") -> str:
    """Name, policy, state, round, metric, rate, time left and time of the run."""
    parts = [f"round {reply.round}/{reply.rounds}" if reply.rounds else f"round {reply.round}"]
    parts += [reply.tested] if reply.tested else []
    parts += [rate_text(reply.rounds_per_s)] if reply.rounds_per_s else []
    parts += [f"{short_time(reply.left_s)} left"] if reply.HasField("left_s") else []
    return f"{reply.name}: " + ", ".join([reply.policy, reply.state, *parts, f"{reply.now_s:.0f} s"])


def status_table(reply: "pb.StatusReply", width: int | None = None) -> Group:
    """An answer for people. width: columns that there are, None: as many as it takes."""
    rows = [_cells(one) for one in reply.clients]
    shown = _fitting(rows, width)
    table = Table(*(_COLUMNS[place] for place in shown), box=None)
    for row in rows:
        table.add_row(*(row[place] for place in shown))
    notes = _notes(reply)
    left_out = [name for place, name in enumerate(_COLUMNS) if place not in shown]
    if left_out:
        text = f"not shown in {width} columns: {', '.join(left_out)}; --json has all"
        notes.append(Text(text, style="dim"))
    return Group(Text(headline(reply)), table, *notes)


def _cells(one: "pb.ClientStatus") -> list[Text]:
    seen = f"{one.last_seen_s:.1f} s ago" if one.last_seen_s >= 0 else "-"
    speeds = [f"{s:.3g}" if s else "-" for s in (one.batch_s, one.down_s, one.up_s)]
    age = f"{one.task_age_s:.1f} s" if one.task else "-"
    late = Text(f"{one.late_s:.1f} s" if one.late_s else "-", style="yellow" if one.late_s else "")
    refused = Text(str(one.refused), style="red" if one.refused else "")
    plain = [Text(text) for text in (one.name, one.state, one.doing, age, seen, *speeds)]
    return [*plain[:4], late, *plain[4:], Text(str(one.updates)), refused]


def _fitting(rows: list[list[Text]], width: int | None) -> list[int]:
    """Columns that fit into a width, without wrapping a cell if that can be."""
    shown = list(range(len(_COLUMNS)))
    widths = [
        max(len(name), *(len(row[place]) for row in rows), 0) for place, name in enumerate(_COLUMNS)
    ]
    news = {place for place in shown if any(row[place].plain not in ("-", "0") for row in rows)}
    order = [_COLUMNS.index(name) for name in _LEFT_OUT]
    for place in sorted(order, key=news.__contains__):
        if width is None or sum(widths[one] + 2 for one in shown) <= width:
            break
        shown.remove(place)
    return shown


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
