"""`fedpace report --format`, on two short runs about time alone."""

import csv
import io
import json

import pytest

from fedpace.runs.simulate import simulate
from tests.cli.command import fedpace

TIMING = {"clients": 4, "task": {"kind": "timing"}, "stop": {"rounds": 3}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for label in ("sync", "fedbuff"):
        simulate(TIMING, policy=label, out=folder / "all" / label)
    return folder


def test_a_table_goes_to_stdout_and_nothing_else_does(runs):
    before = set((runs / "all").iterdir())
    done = fedpace(runs, "report", "all", "--format", "csv", "--first", "sync")
    assert (done.returncode, done.stderr) == (0, "")
    first, second = csv.DictReader(io.StringIO(done.stdout))
    assert (first["policy"], second["policy"]) == ("sync", "fedbuff")
    assert float(first["rounds"]) == 3
    assert set((runs / "all").iterdir()) == before


def test_a_table_goes_to_a_file_whose_name_tells_its_format(runs):
    done = fedpace(runs, "report", "all", "-o", "tables/all.json")
    assert (done.returncode, done.stdout) == (0, "")
    rows = json.loads((runs / "tables/all.json").read_text())["rows"]
    assert {row["policy"] for row in rows} == {"sync", "fedbuff"}
    done = fedpace(runs, "report", "all", "--format", "latex", "--out", "all.txt")
    assert r"\toprule" in (runs / "all.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--format", "xls"), "there is no format 'xls'; known are csv, json, latex, markdown"),
        (("-o", "a.xls"), "a.xls ends in none of .csv, .tex, .md, .json; say --format"),
        (("--format", "csv", "-o", "all"), "all cannot be written: Is a directory"),
    ],
)
def test_a_mistake_is_one_line(runs, arguments, message):
    done = fedpace(runs, "report", "all", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
