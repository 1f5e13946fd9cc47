"""Every example runs, and says what its page says."""

import doctest
import subprocess
import sys
from pathlib import Path

from fedpace.planning import timely

EXAMPLES = Path(__file__).parent.parent / "examples"


def output_of(name):
    done = subprocess.run(
        [sys.executable, name], cwd=EXAMPLES, capture_output=True, text=True, timeout=300, check=True
    )
    return done.stdout


def test_own_task_shows_three_policies_and_is_short():
    lines = output_of("own_task.py").splitlines()
    assert [line.split()[0] for line in lines] == ["timelyfl", "fedbuff", "sync"]
    assert "80% after" in lines[0]
    assert len((EXAMPLES / "own_task.py").read_text().splitlines()) <= 25


def test_the_page_shows_the_example_as_it_is():
    page = (EXAMPLES.parent / "docs/own.md").read_text()
    example = (EXAMPLES / "own_task.py").read_text()
    assert example.split('"""\n\n', 1)[1].strip() in page
    policy = (EXAMPLES / "own_policy.py").read_text()
    start = policy.index("@dataclass")
    assert policy[start : policy.index("if __name__")].strip() in page


def test_the_schedulers_example_says_what_it_gives():
    assert doctest.testmod(timely).attempted == 3
    assert doctest.testmod(timely).failed == 0


def test_own_policy_learns():
    accuracy = float(output_of("own_policy.py").split()[1].rstrip("%"))
    assert accuracy > 50
