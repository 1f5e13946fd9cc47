"""`make test-gpu`: which tests it runs, and what it says of them."""

import json
import re
from pathlib import Path

import pytest

from tests.remote.driven import load_tool

ROOT = Path(__file__).parent.parent

TESTS = """
import pytest, time
pytestmark = pytest.MARK

def test_good(): pass
def test_better(): pass
def test_bad(): assert 1 == 2, "one is not two"
def test_elsewhere(): pytest.skip("needs two GPUs")
""".replace("MARK", "mark." + "gpu")


@pytest.fixture
def tool(tmp_path, monkeypatch):
    found = load_tool("test_gpu")
    monkeypatch.setattr(found, "ROOT", tmp_path)
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_it.py").write_text(TESTS)
    (folder / "test_other.py").write_text("import nothing_that_is_there\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = gpu: needs one\naddopts = -n 2\n")
    return found


def test_tests_are_shared_out_and_every_one_is_told(tool):
    assert tool.marked_files() == ["tests/test_it.py"]
    found = tool.tests_on_gpu(within_s=120, jobs=2)
    assert found["counts"] == {"passed": 2, "failed": 1, "skipped": 1, "not run": 0}
    assert found["closing_line"].startswith("2 passed, 1 failed, 1 skipped in ")
    assert not found["good"]
    (bad,) = found["failed"]
    assert bad["test"] == "tests/test_it.py::test_bad"
    assert "needs two GPUs" in found["skipped"][0]["reason"]


def test_what_there_was_no_time_for_is_not_run_and_no_success(tool):
    found = tool.tests_on_gpu(within_s=-1, jobs=1)
    assert found["counts"] == {"passed": 0, "failed": 0, "skipped": 0, "not run": 4}
    assert len(found["not_run"]) == 4
    assert not found["good"]


def test_a_process_that_breaks_off_is_no_success(tool):
    row = {"test": "it", "outcome": "passed", "seconds": 1.0, "reason": ""}
    assert tool.summary([row], [0, 5], 1.0)["good"]
    assert not tool.summary([row], [0, -9], 1.0)["good"]
    assert not tool.summary([], [5], 1.0)["good"]
    assert json.dumps(tool.summary([row], [0], 1.0))


def test_every_test_that_needs_a_gpu_is_marked():
    """One that skips itself would not be found by `make test-gpu`."""
    own = re.compile(r"skip(if)?\([^\n]*cuda\.is_available")
    found = [path for path in (ROOT / "tests").rglob("test_*.py") if own.search(path.read_text())]
    assert found == []
    assert "tests/learn/many/test_kernels.py" in load_tool("test_gpu").marked_files()
