"""Types help users: mypy understands a script that uses fedpace, and finds its mistakes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RIGHT = """
import fedpace
from fedpace.core.commands import Aggregate, Train
from fedpace.core.events import Arrived, Joined
from fedpace.core.policy import Commands, NoSettings


class Eager(fedpace.Policy[NoSettings]):
    def on_joined(self, event: Joined) -> Commands:
        yield Train(event.client, self.new_task(), self.version, self.context.work())

    def on_arrived(self, event: Arrived) -> Commands:
        yield Aggregate((event.task,), (0.1,), rule="sum")


def early(round: fedpace.RoundInfo) -> None:
    if round.loss is not None and round.loss < 0.1:
        raise fedpace.StopRun("low enough")


result: fedpace.Result = fedpace.simulate("config.toml", policy=Eager, seed=1, on_round=early)
score: float = result.metrics["accuracy"]
reached: float | None = result.time_to(0.8)
found = fedpace.compare({"clients": 4}, policies=["sync", Eager], seeds=[1, 2], jobs=1)
first: fedpace.Result = found["sync"][0]
version: str = fedpace.__version__
"""
WRONG = (
    RIGHT
    + """
fedpace.simulate("config.toml", policy=3)
fedpace.compare("config.toml", polices=["sync"])
result.metrics["accuracy"].upper()
"""
)


def mypy(tmp_path, text):
    (tmp_path / "script.py").write_text(text)
    options = ["--strict", "--follow-imports", "silent", "--ignore-missing-imports"]
    command = [sys.executable, "-m", "mypy", *options, "--cache-dir", str(ROOT / ".mypy_cache/users")]
    done = subprocess.run(
        [*command, "script.py"],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


@pytest.mark.nightly  # it reads all of torch
def test_mypy_understands_a_users_script(tmp_path):
    assert "Success" in mypy(tmp_path, RIGHT)
    found = mypy(tmp_path, WRONG)
    assert "Found 3 errors" in found
    assert 'Unexpected keyword argument "polices"' in found
    assert 'has no attribute "upper"' in found
