"""Every example runs, and says what its page says."""

import doctest
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import fedpace
from fedpace.planning import timely
from fedpace.runs.comparison.compare import labels
from fedpace.runs.config import load, plugin
from tests.shared_data import real_data

EXAMPLES = Path(__file__).parent.parent / "examples"
CONFIGS = sorted((EXAMPLES.parent / "configs").glob("*.toml"))
MEASURING = {"adel", "dynamite"}
"""Policies of these configs ask about updates, so there have to be some."""


@pytest.fixture
def output_of(monkeypatch, capsys):
    """Run an example as a script, from its folder; what it prints."""
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)

    def run(name):
        runpy.run_path(name, run_name="__main__")
        return capsys.readouterr().out

    return run


def test_own_task_shows_three_policies_and_is_short(output_of):
    lines = output_of("own_task.py").splitlines()
    assert [line.split()[0] for line in lines] == ["timelyfl", "fedbuff", "sync"]
    assert "80% after" in lines[0]
    assert len((EXAMPLES / "own_task.py").read_text().splitlines()) <= 25


def test_the_page_shows_the_example_as_it_is():
    page = (EXAMPLES.parent / "docs/own.md").read_text()
    example = (EXAMPLES / "own_task.py").read_text()
    assert example.split('"""\n\n', 1)[1].strip() in page
    stream = (EXAMPLES / "own_stream.py").read_text()
    assert stream.split('"""\n\n', 1)[1].strip() in page
    policy = (EXAMPLES / "own_policy.py").read_text()
    start = policy.index("@dataclass")
    assert policy[start : policy.index("if __name__")].strip() in page


def test_the_schedulers_example_says_what_it_gives():
    assert doctest.testmod(timely).attempted == 3
    assert doctest.testmod(timely).failed == 0


def test_own_policy_learns(output_of):
    accuracy = float(output_of("own_policy.py").split()[1].rstrip("%"))
    assert accuracy > 50


def test_own_stream_remembers_in_a_reservoir_and_forgets_in_a_queue(output_of):
    lines = [line.replace("%", "").split() for line in output_of("own_stream.py").splitlines()]
    worst = {keep: int(low) for keep, low, _, _ in lines}
    assert worst["reservoir"] > 75
    assert worst["fifo"] < worst["reservoir"] - 10


def test_padded_text_learns(output_of):
    assert int(output_of("padded_text.py").split()[1].rstrip("%")) > 75


LIMITED = """
import re, resource, runpy, sys
import fedpace, numpy, torch
torch.set_num_threads(1)
pair = torch.zeros(40, 2), torch.zeros(40, dtype=torch.int64)
tiny = fedpace.Task(lambda: torch.nn.Linear(2, 2), pair, pair)  # what imports take does not count
fedpace.simulate({"clients": 2, "stop": {"rounds": 1}}, task=tiny, policy="sync")
held = 1024 * int(re.search(r"VmData:\\s+([0-9]+)", open("/proc/self/status").read())[1])
resource.setrlimit(resource.RLIMIT_DATA, (held + int(sys.argv[1]),) * 2)
runpy.run_path("larger_than_memory.py", run_name="__main__")
try:
    numpy.ones(int(sys.argv[1]), numpy.uint8)
except MemoryError:
    print("no more than that")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit a process's data")
def test_larger_than_memory_runs_in_less_memory_than_its_file_has():
    allowed = 70_000_000
    command = [sys.executable, "-c", LIMITED, str(allowed)]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert int(first.split()[0]) * 1_000_000 > allowed
    assert int(first.split()[-1].rstrip("%")) > 90
    assert last == "no more than that"


def test_speech_learns_words_of_speakers_that_it_has_not_heard(output_of, monkeypatch):
    monkeypatch.setattr("sys.argv", ["speech.py"])
    lines = output_of("speech.py").splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["timelyfl", "4", "speakers,"],
        ["sync", "4", "speakers,"],
    ]
    assert all(int(line.split()[4].rstrip("%")) > 60 for line in lines)  # 25% by chance


def test_regression_has_a_readable_table_without_accuracy(output_of):
    text = output_of("regression.py")
    rows = [line.split() for line in text.splitlines()]
    assert ["r2", "≥", "0.9", "(min)"] in [row[:4] for row in rows]
    best = next(row for row in rows if row[:2] == ["best", "r2"])
    assert all(float(value) > 0.9 for value in best[2:])
    assert "worst decile r2" in text
    assert "slow third r2" in text
    assert text.count("mean error below 1 after") == 2


@pytest.mark.filterwarnings("ignore::fedpace.core.errors.NothingHappened")  # in so short a time
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_policy_of_every_shipped_config_runs(path, monkeypatch):
    timing = "false" if path.stem in MEASURING else "true"
    config = load(path, [f"timing_only={timing}", "stop.hours=0.05", "stop.rounds=3"])
    chosen = labels(config)
    folder = {"mnist": "mnist", "spoken-digits": "speech"}.get(config.task["kind"])
    if folder is not None:
        monkeypatch.setenv("FEDPACE_DATA", str(real_data(folder).parent))
    kind, settings = plugin("tasks", config.task, "task")
    task = kind.build(settings, config.clients)  # once for all, as reading it takes most of the time
    for label in chosen:
        assert fedpace.simulate(config, task=task, policy=label).summary.tasks > 0
