"""Tables of comparisons at several widths, as they are printed."""

import io
import re
import sys

import pytest
from rich.console import Console

from fedpace.report.collection import write_report
from fedpace.report.table import measures
from fedpace.report.tables.layout import choose_grids, comparison_blocks

TARGETS = (0.65, 0.75)


@pytest.fixture
def groups(summary):
    """Makes a comparison of so many policies over three seeds; some miss a target, some diverge."""

    def make(policies, name="beat{number}h", **values):
        return {
            name.format(number=number): [
                summary(
                    seed=seed,
                    accuracy=[(0.0, 0.1), (3000.0 + 900 * number, 0.6 + 0.05 * ((number + seed) % 3))],
                    loss=[(0.0, 2.3), (9000.0, 0.51234)],
                    **values,
                )
                for seed in range(3)
            ]
            for number in range(policies)
        }

    return make


def printed(groups, width, targets=TARGETS):
    """What a terminal of this width shows."""
    console = Console(file=io.StringIO(), width=width)
    for block in comparison_blocks(groups, targets, width):
        console.print(block, no_wrap=True, overflow="ignore", crop=False)
    return console.file.getvalue()


def check_whole(text, groups, width):
    """Every name and number stands in one piece, and no line is wider than the terminal."""
    assert max(map(len, text.splitlines())) <= width
    words = re.findall(r"\S+", text)
    for label in groups:
        assert label in words
    for one in measures(groups, TARGETS):
        for cell in (one.header, *one.cells):
            for line in cell.split("\n"):
                assert line in text
    known = {word for one in measures(groups, TARGETS) for cell in one.cells for word in cell.split()}
    numbers = [word for word in words if re.fullmatch(r"[\d.]+x?", word)]
    assert set(numbers) <= known | {"3"}  # of the seeds in the caption


@pytest.mark.parametrize("name", ["beat{number}h", "fedcompass-lr=0.1-lambda=1.2-k={number}"])
@pytest.mark.parametrize("policies", [2, 5, 9, 14])
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_word_and_no_number_is_broken_at_any_width(groups, width, policies, name):
    found = groups(policies, name)
    check_whole(printed(found, width), found, width)


def test_five_policies_at_eighty_columns_are_two_tables(groups):
    found = groups(5)
    grids = choose_grids(list(found), measures(found, TARGETS), 80)
    assert len(grids) == 2
    assert [grid.rows[1][0] for grid in grids] == ["beat0h", "beat0h"]
    assert max(grid.width for grid in grids) <= 80


def test_a_wide_terminal_has_one_table_and_few_policies_side_by_side(groups):
    for policies, head in ((2, ("", "beat0h", "beat1h")), (5, ("policy", "to 65%\n(min)"))):
        found = groups(policies)
        (grid,) = choose_grids(list(found), measures(found, TARGETS), 200)
        assert tuple(grid.rows[0][: len(head)]) == head


def test_names_as_wide_as_the_terminal_stand_above_their_numbers(groups):
    name = "a-policy-with-a-name-that-is-as-long-as-a-line-{number}"
    found = groups(3, name)
    text = printed(found, 50)
    for label in found:
        assert f"\n{label}\n  to 65% (min)  " in text
    check_whole(text, found, 60)


def test_a_label_is_never_taken_for_markup(groups):
    assert "[bold]a|b" in printed({"[bold]a|b": groups(1)["beat0h"]}, 80)


def test_a_report_that_is_piped_has_whole_words_at_eighty_columns(groups, tmp_path, monkeypatch):
    monkeypatch.setattr("fedpace.report.figures.draw_comparison", lambda *_: [])
    monkeypatch.delenv("COLUMNS", raising=False)
    found, file = groups(5), io.StringIO()
    write_report(found, tmp_path, TARGETS, Console(file=file))
    table, _, files = file.getvalue().rpartition("times are virtual.")
    check_whole(table, found, 80)
    assert "report.md" in files


def test_a_report_without_matplotlib_says_what_it_lacks(groups, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fedpace.report.figures", None)
    monkeypatch.delitem(sys.modules, "fedpace.report.figures")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    file = io.StringIO()
    write_report(groups(1), tmp_path, TARGETS, Console(file=file, width=200))
    assert "there is no figure: matplotlib is not installed; pip install matplotlib" in file.getvalue()
    assert (tmp_path / "report.html").is_file()
    assert not (tmp_path / "figure.png").exists()
