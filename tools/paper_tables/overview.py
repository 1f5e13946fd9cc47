"""Ours against the best of the others in all tables: where it is first, and where not.

In a second form a target is reached when the mean of a few tests in a row is: the more a curve swings,
the sooner comes the first test that is there.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from fedpace.core.errors import ConfigError
from fedpace.core.host import write_whole
from paper_tables.ahead import NOBODY, Lead, leads, leads_by_column
from paper_tables.pages import tables_in
from paper_tables.rows import Row, rows_of
from paper_tables.table import FOLDER, PaperTable, read_table
from runs import Runs

BEGIN, END = "<!-- overview{} -->", "<!-- end of overview{} -->"
FORMS = {"": 1, " in means": 3}
"""What a form is called in its markers -> tests in a row of a mean."""


def overview(page: Path, tests: int = 1) -> Iterator[str]:
    """The table: a line for every scene, or every value of the columns, of each table with ours in it.

    pairs: runs of ours and of another one on the same seed; tests: those of the mean that is to reach
    a target. Of more than one it tells tables where all are tested at the same times.
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
        if tests > 1 and any(scene.config.evaluate.every_s is None for scene in table.scenes):
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
        if tests > 1:
            all_leads = _leads_in_means(table, study, rows, tests)
        else:
            tell = leads if table.columns is None else leads_by_column
            all_leads = tell(table, study, table.scenes, rows)
        for where, found in groupby(all_leads, lambda one: one.where):
            told = [one for one in found if one.over_rival.values]
            if told:
                yield ", ".join(text for text in (study, where) if text), told


def _leads_in_means(
    table: PaperTable, study: str, rows: Mapping[str, Sequence[Row]], tests: int
) -> Iterator[Lead]:
    """Leads by means of tests, but where tests of ours or of the best of the others were not all kept.

    Nor is the last target told where runs end at its first test.
    """
    own = table.label_in(study, table.ours)
    for scene in table.scenes:
        whole = {NOBODY, *(row.policy for row in rows[scene.name] if row.whole)}
        means = {scene.name: [row.in_means(tests) for row in rows[scene.name]]}
        found = list(leads(table, study, [scene], means))
        told = found if table.to_end else found[:-1]
        yield from (one for one in told if own in whole and one.rival in whole)


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
