"""`fedpace fleets learn` and `check` as a user meets them."""

import json

import pytest

from tests.cli.command import fedpace, succeeded
from tests.fleet.learned.runs import simulate


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for policy in ("timelyfl", "sync"):
        simulate(folder, policy)
    return folder


def test_learning_with_a_check_writes_devices_figure_and_numbers(runs, tmp_path):
    shown = succeeded(fedpace(tmp_path, "fleets", "learn", str(runs), "-o", "lab.csv", "--check"))
    assert 'file = "lab.csv"' in shown
    assert "timelyfl     6 rounds, the median" in shown
    found = json.loads((tmp_path / "predicted.json").read_text())
    assert found["fleet"] == "lab.csv"
    assert {one["label"]: round(one["error"], 3) for one in found["runs"]} == {"sync": 0, "timelyfl": 0}
    assert all(len(one["real_s"]) == len(one["predicted_s"]) == 6 for one in found["runs"])
    for kind in ("png", "svg"):
        assert (tmp_path / f"predicted.{kind}").exists()
    config = tmp_path / "config.toml"
    config.write_text(
        'clients = 4\npolicy = "fedbuff"\n[task]\nkind = "timing"\n[stop]\nrounds = 2\n'
        '[fleet]\nkind = "file"\nfile = "lab.csv"\n'
    )
    succeeded(fedpace(tmp_path, "run", "config.toml"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("learn", "nowhere"), "there is no folder nowhere"),
        (("learn", "empty.jsonl"), "empty.jsonl is empty; the run wrote nothing"),
        (("learn", "list.csv"), "give the journal.jsonl of a run"),
        (("check", "nowhere.csv", "RUNS"), "nowhere.csv"),
        (("check", "list.csv", "RUNS"), "list.csv has no column 'compute_s'"),
        (("learn", "RUNS", "-o", "empty.jsonl/fleet.csv"), "give another --out"),
        (("lear",), "there is no fleet 'lear'; known are"),
    ],
)
def test_mistakes_are_one_line(runs, tmp_path, words, complaint):
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "list.csv").write_text("a,b\n1,2\n")
    done = fedpace(tmp_path, "fleets", *(str(runs) if one == "RUNS" else one for one in words))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert complaint in done.stderr
