"""Layouts of a comparison's table for a terminal: the first that fits, and never a broken word.

Where nothing fits in one piece there are several tables below each other: of all labels with some of
the numbers, or of some labels with all numbers, whichever is shorter. The last resort is a block for
each label, in which a number has a line of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TypeVar

from rich import box
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from fedpace.report.summary import Groups
from fedpace.report.table import TableRow, caption, heading, measures

MOST_BESIDE = 4
"""Labels that are shown side by side rather than one below the other, where both fit."""
_GAP = 2
"""Spaces between columns."""
_Cells = Sequence[Sequence[str]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TextGrid:
    """Rows of cells, which may have line breaks: a heading first, a name first in each row."""

    rows: _Cells

    @property
    def width(self) -> int:
        """Columns of a terminal that it takes."""
        columns = zip(*self.rows, strict=True)
        return sum(max(map(_width, column)) + _GAP for column in columns) - _GAP

    @property
    def height(self) -> int:
        """Lines that it takes, with the rule below its heading and an empty one before and after it."""
        return sum(max(cell.count("\n") for cell in row) + 1 for row in self.rows) + 3

    def table(self) -> Table:
        """The table to print, no wider than `width`."""
        table = Table(
            box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0), expand=False
        )
        head, *body = self.rows
        for number, cell in enumerate(head):
            table.add_column(Text(cell), justify="right" if number else "left", no_wrap=True)
        for row in body:
            table.add_row(*map(Text, row))
        return table


def comparison_blocks(
    groups: Groups, targets: Sequence[float], width: int, metric: str | None = None
) -> list[RenderableType]:
    """What to print one below the other: the heading, tables that fit the width, the caption."""
    found = measures(groups, targets, metric)
    grids = choose_grids(list(groups), found, width)
    shown = [grid.table() for grid in grids] if grids else [Text(_blocks(groups, found))]
    blocks: list[RenderableType] = [_paragraph(heading(groups, long=False), width)]
    for one in shown:
        blocks += [Text(""), one]
    return [*blocks, Text(""), _paragraph(caption(groups), width)]


def choose_grids(labels: Sequence[str], found: Sequence[TableRow], width: int) -> list[TextGrid]:
    """The tables that are easiest to read of those that fit; none where only blocks do."""
    beside = [_beside(labels, found, broken) for broken in (False, True)]
    below = [_below(labels, found)]
    whole = [*beside, *below] if len(labels) <= MOST_BESIDE else [*below, *beside]
    for grid in whole:
        if grid.width <= width:
            return [grid]
    parts = [
        _pack(found, lambda some: _below(labels, some), width),
        _pack(labels, lambda some: _beside(some, found, True, labels), width),
    ]
    fitting = [part for part in parts if part]
    return min(fitting, key=lambda part: sum(grid.height for grid in part), default=[])


def _pack(items: Sequence[T], make: Callable[[Sequence[T]], TextGrid], width: int) -> list[TextGrid]:
    """As few tables as fit, each of some of the items in their order; none where one item does not."""
    grids: list[TextGrid] = []
    some: list[T] = []
    for item in items:
        if some and make([*some, item]).width > width:
            grids.append(make(some))
            some = []
        some.append(item)
        if make(some).width > width:
            return []
    return [*grids, make(some)]


def _below(labels: Sequence[str], found: Sequence[TableRow]) -> TextGrid:
    """A row a label, a column a number."""
    head = ["policy", *(one.header for one in found)]
    return TextGrid([head, *([name, *(m.cells[i] for m in found)] for i, name in enumerate(labels))])


def _beside(
    labels: Sequence[str], found: Sequence[TableRow], broken: bool, every: Sequence[str] | None = None
) -> TextGrid:
    """A column a label, a row a number. every: all labels, where these are some of them."""
    places = [(every or labels).index(label) for label in labels]
    rows = [[_one_line(one.header), *(one.cells[place] for place in places)] for one in found]
    if not broken:
        rows = [[_one_line(cell) for cell in row] for row in rows]
    return TextGrid([["", *labels], *rows])


def _blocks(groups: Groups, found: Sequence[TableRow]) -> str:
    """A block a label, a line a number."""
    names = max((_width(_one_line(one.header)) for one in found), default=0)

    def lines(label: str, place: int) -> Iterator[str]:
        yield label
        for one in found:
            yield f"  {_one_line(one.header):{names}}  {_one_line(one.cells[place])}"

    return "\n\n".join("\n".join(lines(label, place)) for place, label in enumerate(groups))


def _paragraph(text: str, width: int) -> Text:
    return Text("\n".join(wrap(text, width, break_long_words=False, break_on_hyphens=False)))


def _one_line(cell: str) -> str:
    return cell.replace("\n", " ")


def _width(cell: str) -> int:
    return max(map(cell_len, cell.split("\n")))
