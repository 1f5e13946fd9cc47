"""Ours against the best of the others in all tables: where it is first, and where not.

In a second form a target is reached when the mean of a few tests in a row is: the more a curve swings,
the sooner comes the first test that is there.
"""

import json
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from fedpace.core.errors import ConfigError
from fedpace.core.host import write_whole
from paper_tables.ahead import Lead, leads, leads_by_column
from paper_tables.pages import tables_in
from paper_tables.rows import find_row, rows_of
from paper_tables.table import FOLDER, PaperTable, read_table
from runs import Runs

BEGIN, END = "<!-- overview{} -->", "<!-- end of overview{} -->"
MEANS_OF = 3
"""Tests in a row of the second form."""
FORMS = {"": 1, " in means": MEANS_OF}
"""What a form is called in its markers -> tests of a mean."""


def overview(page: Path, tests: int = 1) -> Iterator[str]:
    """The table: a line for every scene, or every value of the columns, of each table with ours in it.

    pairs: runs of ours and of another one on the same seed; tests: those of the mean that is to reach
    a target. Of more than one it tells tables where all are tested at the same times, of these the
    scenes where all tests of ours were kept, and not the last target, at whose first test runs end.
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
        if tests > 1 and table.config.evaluate.every_s is None:
            continue
        runs = json.loads((docs / "measured" / f"{table.name}.json").read_text())["runs"]
        where = shown[table.name]
        title = table.title if where == page.name else f"[{table.title}]({where})"
        for place, found in _places(table, runs, tests):
            pairs = max(len(one.over_rival.values) for one in found)
            yield f"| {title} | {place} | {pairs} | {'; '.join(_of_rivals(found))} |"
            title = ""


def _places(table: PaperTable, runs: Runs, tests: int) -> Iterator[tuple[str, list[Lead]]]:
    """The scenes of each study, or the values of its columns."""
    for study in table.studies:
        rows = {scene.name: rows_of(table, scene, study, runs) for scene in table.scenes}
        scenes = list(table.scenes)
        if tests > 1:
            own = table.label_in(study, table.ours)
            ours = {name: find_row(some, own) for name, some in rows.items()}
            scenes = [one for one in scenes if (row := ours[one.name]) is None or row.whole]
            rows = {name: [row.in_means(tests) for row in some] for name, some in rows.items()}
        tell = leads if table.columns is None else leads_by_column
        for where, some in groupby(tell(table, study, scenes, rows), lambda one: one.where):
            found = list(some)
            if tests > 1 and not table.to_end:
                found.pop()
            told = [one for one in found if one.over_rival.values]
            if told:
                yield ", ".join(text for text in (study, where) if text), told


def _of_rivals(found: Iterable[Lead]) -> Iterator[str]:
    """A text for each best rival: how many times ahead of it ours is, target by target."""
    for rival, some in groupby(found, lambda one: one.rival):
        yield f"{rival}: " + ", ".join(
            f"{one.over_rival.mean}{one.spread} ({one.target})" for one in some
        )


def _put(text: str, page: Path, name: str, tests: int) -> str:
    """The text of a page with one form in its place."""
    begin, end = BEGIN.format(name), END.format(name)
    marked = re.compile(f"^{begin}$.*?^{end}$", re.DOTALL | re.MULTILINE)
    if not marked.search(text):
        raise ConfigError(f"{page} has no place for it; put lines {begin} and {end} where it belongs")
    made = "\n".join([begin, *overview(page, tests), end])
    return marked.sub(lambda _: made, text)


def write_overview(page: Path, check: bool = False) -> None:
    """Put both forms into their places in a page; check: change nothing, and fail where they differ."""
    text = changed = page.read_text(encoding="utf-8")
    for name, tests in FORMS.items():
        changed = _put(changed, page, name, tests)
    if check and changed != text:
        raise ConfigError(f"{page} differs from the tables' results; write it anew, without --check")
    if not check:
        write_whole(page, changed)
