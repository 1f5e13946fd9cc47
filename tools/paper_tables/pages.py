"""Tables of papers in pages of docs/, between two markers, which say which results they are of."""

import re
from collections.abc import Iterator
from pathlib import Path

from fedpace.core.errors import ConfigError
from fedpace.core.host import write_whole
from paper_tables.show import show
from paper_tables.table import PaperTable
from runs import Runs

MARKED = re.compile(
    r"^<!-- table (?P<name>[\w-]+) -->$.*?^<!-- end of table (?P=name) -->$", re.DOTALL | re.MULTILINE
)


def block(table: PaperTable, runs: Runs, page: Path) -> str:
    """The markers, and between them the command, the figure if there is one, and the tables."""
    lines = [f"<!-- table {table.name} -->", *_lines(table, runs, page)]
    text = "\n".join([*lines, f"<!-- end of table {table.name} -->"])
    return re.sub(r"\n{3,}", "\n\n", text)


def _lines(table: PaperTable, runs: Runs, page: Path) -> Iterator[str]:
    yield f"`python tools/papers.py {table.name} docs/measured/{table.name}.json`"
    figure = Path("figures") / f"{table.name}.png"
    if (page.parent / figure).exists():
        yield f"\n![{table.title}]({figure})"
    yield ""
    yield from show(table, runs)


def tables_in(page: Path) -> list[str]:
    """Names of the tables that a page has places for."""
    return [found["name"] for found in MARKED.finditer(page.read_text(encoding="utf-8"))]


def is_current(page: Path, table: PaperTable, runs: Runs) -> bool:
    """Tell if the page has the table as its results are."""
    return block(table, runs, page) in page.read_text(encoding="utf-8")


def update_page(page: Path, table: PaperTable, runs: Runs, check: bool = False) -> None:
    """Put a table into its place in a page; check: change nothing, and fail where they differ."""
    if table.name not in tables_in(page):
        raise ConfigError(
            f"{page} has no place for {table.name}; put a line <!-- table {table.name} --> and a line "
            f"<!-- end of table {table.name} --> where the table belongs"
        )
    if check:
        if not is_current(page, table, runs):
            raise ConfigError(f"{page} differs from its results; run the same command without --check")
        return
    made = block(table, runs, page)
    text = page.read_text(encoding="utf-8")
    write_whole(page, MARKED.sub(lambda old: made if old["name"] == table.name else old[0], text))
