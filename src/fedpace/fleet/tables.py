"""Columns of numbers from a CSV file, plain or gzip."""

import csv
import io
from collections.abc import Sequence
from importlib.resources.abc import Traversable

from fedpace.core.errors import ConfigError
from fedpace.data.compressed import read_plain


def read_table(path: Traversable, columns: Sequence[str]) -> list[tuple[int, tuple[float, ...]]]:
    """The named columns of every row, each with the number of its line; other columns are ignored."""
    reader = csv.DictReader(io.StringIO(_text(path), newline=""))
    found = reader.fieldnames or []
    missing = [column for column in columns if column not in found]
    if missing:
        raise ConfigError(
            f"{path} has no column {missing[0]!r}; its first line must name {', '.join(columns)}, "
            f"and names {', '.join(found) or 'nothing'}"
        )
    rows = []
    for row in reader:
        values = tuple(_number(path, reader.line_num, name, row[name]) for name in columns)
        rows.append((reader.line_num, values))
    if not rows:
        raise ConfigError(f"{path} has a header but no rows; give at least one row")
    return rows


def check_rows(path: object, rows: int, clients: int) -> None:
    """ConfigError where a file that lists devices has too few of them."""
    if rows < clients:
        raise ConfigError(
            f"{path} lists {rows} devices, but there are {clients} clients; "
            f"set clients to {rows} at most, or add rows"
        )


def _number(path: Traversable, line: int, column: str, text: str | None) -> float:
    try:
        return float(text or "")
    except ValueError as error:
        raise ConfigError(
            f"{path}, line {line}: {column} is {text!r}; give a number in every row"
        ) from error


def _text(path: Traversable) -> str:
    try:
        return read_plain(path).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no CSV file, plain or gzip ({error}); fetch it again") from error
