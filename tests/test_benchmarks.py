"""The gate that benchmarks end with, and journals as they read them; figures are no tests."""

import shutil

import pytest
from benchmarks import gate
from benchmarks.gate import Bound
from benchmarks.gpu import journals

import fedpace
from fedpace.core.journal import JOURNAL, part_path
from tests.remote.driven import load_tool


@pytest.mark.parametrize(
    ("bound", "good", "short", "bad"),
    [(Bound(3.0, 2.0), 3.0, 2.5, 1.9), (Bound(20.0, 40.0), 20.0, 30.0, 41.0)],
    ids=["least", "most"],
)
def test_a_figure_is_good_or_short_of_its_aim_or_fails(monkeypatch, bound, good, short, bad):
    monkeypatch.setattr(gate, "BOUNDS", {"it": bound})
    assert [gate.failed({"it": one}) for one in (good, short, bad)] == [[], [], ["it"]]
    words = [gate.table({"it": one, "unbounded": 1.0}).splitlines()[1:] for one in (good, short, bad)]
    assert [len(lines) for lines in words] == [1, 1, 1]
    assert ["short of the aim" in lines[0] for lines in words] == [False, True, False]
    assert ["FAILS" in lines[0] for lines in words] == [False, False, True]


def test_a_gate_without_a_side_is_none():
    with pytest.raises(ValueError, match="one side"):
        Bound(1.0, 1.0)


def test_tools_read_todays_journals(tmp_path, few_clothes):
    task = {"kind": "idx", "folder": str(few_clothes), "model": "mlp"}
    config = {"clients": 4, "task": task, "policy": "sync", "stop": {"rounds": 2}}
    result = fedpace.simulate(config, out=tmp_path / "run")
    told = journals.messages(tmp_path / "run")
    assert journals.accuracies(told) == [value for _, value in result.accuracy]
    assert journals.trained(tmp_path / "run") == 2 * 720  # all samples, twice
    demo, live = load_tool("federation_demo"), tmp_path / "live" / JOURNAL
    assert demo.evaluations(live) == []
    live.parent.mkdir()
    for path in (part_path(live), live):
        shutil.copy(tmp_path / "run" / JOURNAL, path)
        with path.open("a") as file:
            file.write('{"fact":"eval')  # a line that is being written
        tests = demo.evaluations(live)
        assert [(one.version, one.accuracy) for one in tests][-1] == (2, result.accuracy[-1][1])
        path.unlink()
