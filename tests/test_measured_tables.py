"""Tables of pages that tools print from measured results: the commands run, and the pages have them."""

import runpy
import sys
from pathlib import Path

import pytest

from tests.shared_data import real_data

ROOT = Path(__file__).parents[1]
ADEL = ("mlp", "skewed", "robust", "constants")


def printed(monkeypatch, capsys, tool, results, table):
    """What a tool prints of results that are there."""
    monkeypatch.syspath_prepend(ROOT / "tools")
    words = [tool, str(ROOT / "docs/measured" / results), "--table", table, "--seeds", "0"]
    monkeypatch.setattr(sys, "argv", words)
    runpy.run_path(str(ROOT / "tools" / tool), run_name="__main__")
    return capsys.readouterr().out.splitlines()


def first_table(lines):
    """The rows of the first table."""
    begins = next(place for place, line in enumerate(lines) if line.startswith("|---"))
    rows = lines[begins + 1 :]
    return rows[: next((at for at, line in enumerate(rows) if not line.startswith("|")), len(rows))]


@pytest.mark.parametrize("table", ADEL)
def test_adels_page_has_what_its_tool_prints(monkeypatch, capsys, table):
    rows = first_table(printed(monkeypatch, capsys, "adel_tables.py", f"adel-{table}.json", table))
    page = (ROOT / "docs/adel.md").read_text()
    assert len(rows) >= 1
    assert [row for row in rows if row not in page] == []


def test_dynamites_tool_prints_its_page_and_recommends_fewer_steps_for_more_rounds(monkeypatch, capsys):
    monkeypatch.setenv("FEDPACE_DATA", str(real_data("mnist").parent))
    lines = printed(monkeypatch, capsys, "dynamite_tables.py", "dynamite-steps.json", "steps")
    *rows, recommended = first_table(lines)
    page = (ROOT / "docs/dynamite.md").read_text()
    assert len(rows) == 4
    assert [row for row in rows if row not in page] == []
    what, *taus = recommended.strip("| ").split(" | ")
    assert what == "tau that Theorem 2 recommends"
    assert taus == sorted(taus, key=int, reverse=True)
    assert int(taus[0]) > int(taus[-1])
