"""Numbers of a run as plain rows, one dictionary each, and as pandas data frames."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from fedpace.core.codec import Message
from fedpace.core.commands import GLOBAL
from fedpace.core.errors import ConfigError, unknown
from fedpace.core.facts import Evaluated, Spent
from fedpace.report.summary import Summary

if TYPE_CHECKING:
    from pandas import DataFrame

RowKind = Literal["tests", "rounds", "clients"]
Row = dict[str, Any]


def rows_of(kind: RowKind, summary: Summary, messages: Iterable[Message]) -> list[Row]:
    """One row a test of the model, a round, or a client.

    tests: time_s, round, each metric by its name and, where anything has a price, money so far;
    rounds: round, time_s, updates; clients: client, participation.
    """
    if kind == "tests":
        return _tests(messages)
    if kind == "rounds":
        times = zip(summary.round_times, summary.clients_per_round, strict=True)
        return [
            {"round": number, "time_s": at, "updates": updates}
            for number, (at, updates) in enumerate(times, start=1)
        ]
    if kind == "clients":
        return [{"client": c, "participation": share} for c, share in summary.participation.items()]
    raise unknown("kind of rows", str(kind), get_args(RowKind))


def _tests(messages: Iterable[Message]) -> list[Row]:
    rows: list[Row] = []
    money: dict[str, float] = {}
    for message in messages:
        if isinstance(message, Spent):
            money = {"money": message.money}
        elif isinstance(message, Evaluated) and message.slot == GLOBAL:
            rows.append({"time_s": message.at, "round": message.version, **message.metrics, **money})
    return rows


def run_row(summary: Summary) -> Row:
    """One row for a whole run: how long it took, what it came to, what it moved."""
    row: Row = {"rounds": summary.rounds, "time_s": summary.end_s}
    for one in summary.metrics:
        row |= {one.name: summary.final(one.name), f"best_{one.name}": summary.best(one.name)}
    row |= {"updates": sum(summary.clients_per_round), "bytes": summary.moved_bytes}
    if summary.money is not None:
        row["money"] = summary.money
    return row | {"diverged": summary.diverged is not None, "finished": summary.finished}


def frame_of(rows: Sequence[Row]) -> "DataFrame":
    """The rows as a pandas data frame; ConfigError where pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise ConfigError(
            "frame() needs pandas; install it with: pip install 'fedpace[notebook]', or use rows()"
        ) from error
    return pandas.DataFrame(rows)
