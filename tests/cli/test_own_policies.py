"""Policies of one's own on the command line: their mistakes are one line with file and line number."""

import pytest

from tests.cli.command import fedpace

OWN = """
from fedpace.core.policy import Policy


class Failing(Policy):
    def on_joined(self, event):
        share = 1 / event.at
        return ()


class Idle(Policy):
    pass
"""
MISSPELT = """
from fedpace.core.policy import Policy


class Misspelt(Policy):
    def on_arived(self, event):
        return ()
"""
BROKEN = """
import math
math.sqroot(2)
"""


@pytest.fixture
def own(folder):
    for name, text in (("own", OWN), ("misspelt", MISSPELT), ("broken", BROKEN)):
        (folder / f"{name}.py").write_text(text)
    return folder


def run(folder, policy):
    done = fedpace(folder, "run", "timing.toml", "--policy", policy, "--out", "result")
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        (
            "own:Failing",
            "fedpace: policy Failing failed at Joined (client 0, 0 s): ZeroDivisionError: "
            "float division by zero (own.py:7, in on_joined)",
        ),
        (
            "misspelt:Misspelt",
            "fedpace: 'misspelt:Misspelt' cannot be used: policy Misspelt has 'on_arived', which no "
            "event calls (did you mean 'on_arrived'?)",
        ),
        ("broken:Broken", "has no attribute 'sqroot' (broken.py:3, in <module>)"),
    ],
)
def test_a_mistake_is_one_line_that_says_where(own, policy, complaint):
    code, errors = run(own, policy)
    assert code == 2
    assert complaint in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_a_run_in_which_nothing_happened_says_so_and_has_a_status_of_its_own(own):
    code, errors = run(own, "own:Idle")
    assert code == 4
    assert errors.splitlines()[-1] == (
        "fedpace: own:Idle, seed 0: nothing happened: no task was given; the model is untrained"
    )
    assert "nothing happened: no task was given" in (own / "result/journal.jsonl").read_text()
