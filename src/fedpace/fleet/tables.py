"""Columns of a CSV file, plain or gzip, by their names."""

import csv
import io
import math
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from typing import Self

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError, nearest
from fedpace.data.compressed import read_plain

Floats = npt.NDArray[np.float64]


class CsvTable:
    """A CSV file in memory: texts by column, and the line that each row ends in.

    Errors name the file, the line and the column.
    """

    def __init__(self, path: Traversable, lines: list[int], cells: dict[str, list[str | None]]) -> None:
        self.path, self.lines, self._cells = path, lines, cells

    @classmethod
    def read(cls, path: Traversable, needed: Sequence[str], known: Sequence[str] | None = None) -> Self:
        """The columns of a file. known: those that it may have, where others are refused."""
        reader = csv.reader(io.StringIO(_text(path), newline=""))
        names = [name.strip() for name in next(reader, [])]
        missing = [column for column in needed if column not in names]
        if missing:
            raise ConfigError(
                f"{path} has no column {missing[0]!r}; its first line must name {', '.join(needed)}, "
                f"and names {', '.join(names) or 'nothing'}"
            )
        for place, name in enumerate(names):
            if known is not None and name not in known:
                raise ConfigError(
                    f"{path} has a column {name!r}{nearest(name, known)}; known are {', '.join(known)}"
                )
            if name in names[:place]:
                raise ConfigError(f"{path} has two columns {name!r}; give one")
        lines, rows = [], []
        for row in reader:
            if not row:
                continue
            if known is not None and len(row) != len(names):
                raise ConfigError(
                    f"{path}, line {reader.line_num}: {len(row)} values, but the first line names "
                    f"{len(names)} columns; give one for each"
                )
            lines.append(reader.line_num)
            rows.append((*row, *[None] * (len(names) - len(row))))
        if not rows:
            raise ConfigError(f"{path} has a header but no rows; give at least one row")
        columns = zip(*rows, strict=False)  # a row may be longer than the first line
        return cls(path, lines, {name: list(one) for name, one in zip(names, columns, strict=False)})

    def __contains__(self, column: str) -> bool:
        return column in self._cells

    @property
    def rows(self) -> int:
        return len(self.lines)

    def texts(self, column: str) -> list[str]:
        """Texts of a column, without spaces around them."""
        return [(text or "").strip() for text in self._cells[column]]

    def numbers(self, column: str) -> Floats:
        """Numbers of a column, infinite ones and NaN too."""
        cells = self._cells[column]
        try:
            return np.array([float(text or "") for text in cells])
        except ValueError:
            for text, line in zip(cells, self.lines, strict=True):
                _number(self.path, line, column, text)
            raise

    def positive(self, column: str, or_zero: bool = False) -> Floats:
        """Finite numbers of a column, all above 0, or 0 where it may be."""
        values = self.numbers(column)
        right = (values >= 0 if or_zero else values > 0) & (values < math.inf)
        if not right.all():
            row = int(np.flatnonzero(~right)[0])
            raise ConfigError(
                f"{self.path}, line {self.lines[row]}: {column} is {values[row]:g}; "
                f"give a finite number {'of 0 or more' if or_zero else 'above 0'}"
            )
        return values


def read_table(path: Traversable, columns: Sequence[str]) -> list[tuple[int, tuple[float, ...]]]:
    """The named columns of every row, each with the number of its line; other columns are ignored."""
    table = CsvTable.read(path, columns)
    numbers = np.stack([table.numbers(column) for column in columns], axis=1)
    return [(line, tuple(row)) for line, row in zip(table.lines, numbers.tolist(), strict=True)]


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
        return read_plain(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no CSV file, plain or gzip ({error}); fetch it again") from error
