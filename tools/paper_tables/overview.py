"""Ours against the best of the others in all tables: where it is first, and where not."""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from fedpace.core.errors import ConfigError
from fedpace.core.host import write_whole
from paper_tables.ahead import Lead, leads, leads_by_column
from paper_tables.pages import tables_in
from paper_tables.rows import rows_of
from paper_tables.table import FOLDER, PaperTable, read_table
from runs import Runs

BEGIN, END = "<!-- overview -->", "<!-- end of overview -->"
MARKED = re.compile(f"^{BEGIN}$.*?^{END}$", re.DOTALL | re.MULTILINE)


def overview(page: Path) -> Iterator[str]:
    """The table: a line for every scene, or every value of the columns, of each table with ours in it.

    pairs: runs of ours and of another one on the same seed.
    """
    docs = page.parent
    yield "`python tools/overview.py docs/cadence.md`\n"
    yield "| table | where | pairs | times ahead of the best of the others |"
    yield "|---|---|---:|---|"
    shown = {name: one.name for one in sorted(docs.glob("*.md")) for name in tables_in(one)}
    for path in sorted(FOLDER.glob("*.toml")):
        table = read_table(path)
        if table.ours in (None, table.reference) or table.name not in shown:
            continue
        runs = json.loads((docs / "measured" / f"{table.name}.json").read_text())["runs"]
        where = shown[table.name]
        title = table.title if where == page.name else f"[{table.title}]({where})"
        for place, found in _places(table, runs):
            pairs = max(len(one.over_rival.values) for one in found)
            yield f"| {title} | {place} | {pairs} | {'; '.join(_of_rivals(found))} |"
            title = ""


def _places(table: PaperTable, runs: Runs) -> Iterator[tuple[str, list[Lead]]]:
    """The scenes of each study, or the values of its columns."""
    for study in table.studies:
        rows = {scene.name: rows_of(table, scene, study, runs) for scene in table.scenes}
        tell = leads if table.columns is None else leads_by_column
        for where, found in groupby(tell(table, study, table.scenes, rows), lambda one: one.where):
            told = [one for one in found if one.over_rival.values]
            if told:
                yield ", ".join(text for text in (study, where) if text), told


def _of_rivals(found: Iterable[Lead]) -> Iterator[str]:
    """A text for each best rival: how many times ahead of it ours is, target by target."""
    for rival, some in groupby(found, lambda one: one.rival):
        yield f"{rival}: " + ", ".join(
            f"{one.over_rival.mean}{one.spread} ({one.target})" for one in some
        )


def write_overview(page: Path, check: bool = False) -> None:
    """Put the table into its place in a page; check: change nothing, and fail where they differ."""
    text = page.read_text(encoding="utf-8")
    made = "\n".join([BEGIN, *overview(page), END])
    if not MARKED.search(text):
        raise ConfigError(f"{page} has no place for it; put lines {BEGIN} and {END} where it belongs")
    changed = MARKED.sub(lambda _: made, text)
    if check and changed != text:
        raise ConfigError(f"{page} differs from the tables' results; write it anew, without --check")
    if not check:
        write_whole(page, changed)
