import csv
import io
import json
import shutil
import subprocess

import pytest

from fedpace.core.errors import ConfigError
from fedpace.core.evaluation.metric import LOSS
from fedpace.report.table import measures
from fedpace.report.tables.formats import FORMATS, escape_latex, find_format, render_table, table_rows

TARGETS = (0.5, 0.7)


@pytest.fixture
def groups(summary):
    """Two seeds each; `slow` reaches 70% with one of them alone."""

    def run(seed, at, best):
        return summary(
            seed=seed,
            accuracy=[(0.0, 0.1), (at, 0.5), (2 * at, best)],
            loss=[(0.0, 2.3), (at, 1.25)],
            idle_share=0.25,
        )

    return {
        "quick": [run(0, 600.0, 0.7), run(1, 900.0, 0.8)],
        "slow_50%": [run(0, 3000.0, 0.7), run(1, 3000.0, 0.6)],
    }


def test_csv_has_the_numbers_of_the_table_in_units_that_its_names_tell(groups):
    quick, slow = csv.DictReader(io.StringIO(render_table("csv", groups, TARGETS)))
    assert (quick["policy"], quick["seeds"], slow["policy"]) == ("quick", "2", "slow_50%")
    assert float(quick["to_accuracy_0.5_s"]) == 750.0
    assert float(quick["to_accuracy_0.5_s_sd"]) == pytest.approx(212.132)
    assert float(slow["to_accuracy_0.5_s_factor"]) == 4.0
    assert float(quick["best_accuracy_share"]) == 0.75
    assert float(quick["final_loss"]) == 1.25
    assert float(quick["idle_share"]) == 0.25
    assert float(quick["moved_bytes"]) == 4_000_000
    assert float(quick["ran_s"]) == 20.0


def test_a_target_that_not_all_seeds_reach_has_a_count_and_no_number(groups):
    _, slow = table_rows(groups, TARGETS)
    assert slow["to_accuracy_0.7_s"] is None
    assert slow["to_accuracy_0.7_s_sd"] is None
    assert slow["to_accuracy_0.7_s_reached"] == 1
    assert slow["to_accuracy_0.7_s_mean_of_reached"] == 6000.0
    assert slow["to_accuracy_0.7_s_factor"] is None


def test_every_number_of_the_table_is_in_csv_and_json(groups):
    document = json.loads(render_table("json", groups, TARGETS))
    rows = list(csv.DictReader(io.StringIO(render_table("csv", groups, TARGETS))))
    keys = {one.key for one in measures(groups, TARGETS)}
    assert keys <= set(rows[0]) == set(document["rows"][0])
    for row, other in zip(rows, document["rows"], strict=True):
        for key, text in row.items():
            assert text == ("" if other[key] is None else str(other[key]))
    assert document | {"rows": []} == {
        "format": 1,
        "metric": "accuracy",
        "targets": [0.5, 0.7],
        "clocks": ["virtual"],
        "compute_times": ["per sample"],
        "rows": [],
    }


def test_json_of_runs_without_tests_and_of_one_seed_has_no_empty_names(summary):
    row = json.loads(render_table("json", {"a": [summary(finished=None)]}, (0.5,)))["rows"][0]
    assert row["state"] == "unfinished at round 2"
    assert not any(key.endswith("_sd") or "accuracy" in key for key in row)


def test_markdown_is_that_of_the_report(groups):
    text = render_table("markdown", groups, TARGETS)
    assert "| quick | 12.5 ± 3.5 (1.00x) | 25.0 ± 7.1 (1.00x) |" in text


def test_latex_is_a_tabular_of_booktabs_with_escapes(groups, summary):
    text = render_table("latex", groups, TARGETS)
    assert r"& quick & slow\_50\% \\" in text
    assert r"to 50\% (min) & 12.5 $\pm$ 3.5 (1.00x) & 50.0 $\pm$ 0.0 (4.00x) \\" in text
    assert text.count("&") == 2 * (text.count(r" \\"))
    many = {f"p{number}": [summary(metrics=(LOSS,), loss=[(1.0, 0.5)])] for number in range(6)}
    rows = [line for line in render_table("latex", many, (0.9,)).splitlines() if line.endswith(r"\\")]
    assert len(rows) == 7
    assert r"loss $\leq$ 0.9 (s)" in rows[0]


def test_latex_escapes_what_it_would_take_for_a_command():
    assert escape_latex("a_b {c}\n50% $x$ #1 & \\d ~ ^ < > \u2265") == (
        r"a\_b \{c\} 50\% \$x\$ \#1 \& \textbackslash{}d \textasciitilde{} \textasciicircum{} "
        r"\textless{} \textgreater{} $\geq$"
    )


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(groups, tmp_path):
    odd = r'we{i}rd_\name $%#&~^<>|"'
    table = render_table("latex", {**groups, odd: groups["quick"]}, TARGETS)
    text = "\\documentclass{article}\\usepackage{booktabs}\\usepackage[T1]{fontenc}\\begin{document}\n"
    (tmp_path / "t.tex").write_text(f"{text}{table}\\end{{document}}\n", encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_format_is_named_or_told_by_the_file(tmp_path):
    assert [find_format(name, None) for name in FORMATS] == list(FORMATS)
    assert find_format(None, tmp_path / "a.tex") == "latex"
    assert find_format("csv", tmp_path / "a.txt") == "csv"
    with pytest.raises(ConfigError, match=r"no format 'cvs' \(did you mean 'csv'\?\)"):
        find_format("cvs", None)
    with pytest.raises(
        ConfigError, match=r"a.txt ends in none of .csv, .tex, .md, .json; say --format"
    ):
        find_format(None, tmp_path / "a.txt")
