"""`fedpace trace`: which run is meant, what is written, and mistakes that are one line."""

import gzip
import json
import shutil

import pytest

import fedpace as package
from tests.cli.command import fedpace, succeeded
from tests.report.timeline.test_trace import check_trace


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """A folder with two runs."""
    folder = tmp_path_factory.mktemp("study")
    config = {
        "clients": 4,
        "policy": "sync",
        "task": {"kind": "timing", "samples": 64, "model_mb": 1.0},
        "stop": {"rounds": 2},
    }
    for seed in (0, 1):
        package.simulate(config | {"seed": seed}, out=folder / f"seed-{seed}")
    return folder


def test_a_trace_lies_beside_its_journal_and_says_how_to_open_it(study, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(study / "seed-0", run)
    assert "open it at https://ui.perfetto.dev" in succeeded(fedpace(tmp_path, "trace", "run"))
    text = gzip.decompress((run / "trace.json.gz").read_bytes())
    assert json.loads(text)["otherData"]["run"] == "sync, seed 0"
    check_trace(json.loads(text)["traceEvents"])


def test_a_journal_of_a_run_under_way_and_a_name_of_ones_own_will_do(study, tmp_path):
    journal = (study / "seed-1" / "journal.jsonl").read_bytes()
    part = tmp_path / "journal.jsonl.part"
    part.write_bytes(journal[: len(journal) * 2 // 3])
    succeeded(fedpace(tmp_path, "trace", ".", "--out", "deep/t.json"))
    check_trace(json.loads((tmp_path / "deep" / "t.json").read_text())["traceEvents"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["."], "there are 2 runs in .; give one of them, such as seed-0"),
        (["missing"], "there is no folder missing"),
        (["seed-0", "--out", "seed-0/journal.jsonl/t.json"], "cannot be written"),
        (["seed-0", "--most", "0"], "--most is 0; give 1 or more"),
    ],
)
def test_mistakes_are_one_line(study, arguments, words):
    done = fedpace(study, "trace", *arguments)
    assert done.returncode == 2
    assert words in done.stderr.replace("\n", " ")


def test_a_damaged_journal_is_named_with_its_line(study, tmp_path):
    lines = (study / "seed-0" / "journal.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(b"".join(line for line in lines if not line.startswith(b'{"command":"train"')))
    done = fedpace(tmp_path, "trace", "journal.jsonl")
    assert done.returncode == 2
    assert "the journal is damaged or edited" in done.stderr


def test_report_json_says_why_rounds_took_as_long(study):
    succeeded(fedpace(study, "report", ".", "--mix"))
    runs = json.loads((study / "report.json").read_text())["runs"]["sync"]
    assert len(runs) == 2
    for run in runs:
        told = run["timeline"]
        assert told["length_s"] == run["end_s"]
        assert told["rounds"]["end_s"] == pytest.approx(run["round_times"])
        assert all(why.endswith("of all client time waited") for why in told["rounds"]["why"])
        assert sum(told["totals"]["seconds"].values()) == pytest.approx(4 * run["end_s"])
