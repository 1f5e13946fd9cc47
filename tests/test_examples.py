"""Every example runs, and says what its page says."""

import doctest
import runpy
from pathlib import Path

import pytest

import fedpace
from fedpace.planning import timely
from fedpace.runs.compare import labels
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


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_policy_of_every_shipped_config_runs(path, monkeypatch):
    timing = "false" if path.stem in MEASURING else "true"
    config = load(path, [f"timing_only={timing}", "stop.hours=0.05", "stop.rounds=3"])
    chosen = labels(config)
    if config.task["kind"] == "mnist":
        monkeypatch.setenv("FEDPACE_DATA", str(real_data("mnist").parent))
    kind, settings = plugin("tasks", config.task, "task")
    task = kind.build(settings, config.clients)  # once for all, as reading it takes most of the time
    for label in chosen:
        assert fedpace.simulate(config, task=task, policy=label).summary.tasks > 0
