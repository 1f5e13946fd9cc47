"""Studies from the command line: runs that diverge, fail, are stopped by signals or are not over."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch

from fedpace.runs.simulate import simulate
from tests.cli.command import Begun, fedpace, succeeded
from tests.sim.test_resume import assert_same
from tests.waiting import LONG_S, wait_for

FAILING = """
import os, signal
from fedpace.core.policy import Policy


class Failing(Policy):
    def on_started(self, event):
        raise ValueError("no luck")


class Killed(Policy):
    def on_started(self, event):
        os.kill(os.getpid(), signal.SIGKILL)
"""
LONG = ("--set", "stop.rounds=100000", "--set", "evaluate.every_rounds=100")
SLOW = """
import time
from pathlib import Path
from fedpace.policies.sync import Sync
from fedpace.policies.timelyfl import TimelyFL


class SlowSync(Sync):
    def handle(self, event):
        if Path("slow").exists():
            time.sleep(0.02)
        return super().handle(event)


class SlowTimelyFL(TimelyFL):
    def handle(self, event):
        if Path("slow").exists():
            time.sleep(0.02)
        return super().handle(event)
"""


@pytest.fixture
def begin(folder):
    """Begins a command in a process group of its own; ends what is left of it."""
    begun = []

    def start(*arguments, **how):
        begun.append(Begun(folder, *arguments, log=folder / "said.txt", **how))
        return begun[-1]

    yield start
    for one in begun:
        one.end()


def wait_for_files(process, *paths):
    there, why = lambda: all(path.exists() for path in paths), f"there is not all of {paths}"
    wait_for(there, why, lambda: process.said, 2 * LONG_S)
    time.sleep(0.2)


def rounds_of(folder):
    lines = (folder / "journal.jsonl.part").read_text().splitlines()
    return sum(line.startswith('{"command":"aggregate"') for line in lines)


def test_ctrl_c_before_the_first_snapshot_loses_nothing(folder, begin):
    arguments = ("run", "config.toml", *LONG, "--snapshot-every", "100000")
    process = begin(*arguments, "--out", "long")
    wait_for_files(process, folder / "long/journal.jsonl.part")
    os.killpg(process.pid, signal.SIGINT)
    assert process.ended() == 130
    errors = process.said
    assert "fedpace: stopped by SIGINT at round " in errors
    assert "; go on with: fedpace run config.toml --set stop.rounds=100000" in errors
    assert errors.rstrip().endswith("--out long --resume")
    assert "Traceback" not in errors
    rounds = rounds_of(folder / "long")
    state = torch.load(folder / "long/snapshot.pt", weights_only=True)
    assert state["lines"] == len((folder / "long/journal.jsonl.part").read_text().splitlines())
    end = ("--set", f"stop.rounds={rounds + 2}", "--set", "evaluate.every_rounds=100")
    succeeded(fedpace(folder, "run", "config.toml", *end, "--out", "long", "--resume"))
    succeeded(fedpace(folder, "run", "config.toml", *end, "--out", "whole"))
    assert_same(folder / "whole", folder / "long")


def sleep_in_round_2():
    """A run that is busy when the signals come."""

    def watch(standing):
        if standing.round == 2:
            Path("there").touch()
            time.sleep(600)

    simulate("config.toml", out="out", watches=(watch,))


def test_a_second_signal_ends_it_at_once(folder, begin):
    process = begin(call=sleep_in_round_2)
    wait_for_files(process, folder / "there")
    process.send_signal(signal.SIGINT)
    wait_for(lambda: "once more to end at once" in process.said, "it does not hear the signal")
    assert process.returncode is None
    process.send_signal(signal.SIGINT)
    assert process.ended() == 130


def test_a_stopped_comparison_saves_every_run_under_way_and_goes_on(folder, begin, drawn):
    (folder / "slow_policies.py").write_text(SLOW)
    (folder / "slow").touch()
    slow = ("--set", "policies.sync.use=slow_policies:SlowSync")
    both = ("--set", "policies.timelyfl.use=slow_policies:SlowTimelyFL", *slow)
    arguments = ("compare", "config.toml", "--seeds", "1", "--jobs", "2", "--out", "all", *both)
    process = begin(*arguments, *LONG)
    runs = [folder / "all" / label / "seed-0" for label in ("timelyfl", "sync")]
    wait_for_files(process, *(run / "journal.jsonl.part" for run in runs))
    os.killpg(process.pid, signal.SIGTERM)
    assert process.ended() == 143, process.said
    errors = process.said
    assert "stopped by SIGTERM with 0 of 2 runs finished; go on with: fedpace compare" in errors
    assert "Traceback" not in errors
    assert all((run / "snapshot.pt").exists() for run in runs)
    (folder / "slow").unlink()
    end = ("--set", f"stop.rounds={max(map(rounds_of, runs)) + 2}", *LONG[2:])
    shown = succeeded(fedpace(folder, "report", "all"))
    assert "unfinished at round" in " ".join(shown.split())
    succeeded(fedpace(folder, *arguments, *end, "--resume"))
    succeeded(fedpace(folder, "run", "config.toml", *slow, "--policy", "sync", *end, "--out", "whole"))
    assert_same(folder / "whole", runs[1])


@pytest.mark.parametrize(
    ("policy", "complaint"),
    [
        ("Failing", "bad, seed 0: policy Failing failed at Started"),
        ("Killed", "bad, seed 0: its process was killed; go on with fewer --jobs"),
    ],
)
def test_a_run_that_fails_leaves_the_others_of_its_comparison_alone(folder, policy, complaint):
    (folder / "failing.py").write_text(FAILING)
    arguments = ("compare", "timing.toml", "--set", f"policies.bad.use=failing:{policy}")
    done = fedpace(
        folder,
        *arguments,
        "--seeds",
        "1",
        "--policies",
        "bad,sync,fedbuff",
        "--jobs",
        "1",
        "--out",
        "all",
    )
    assert done.returncode == 2
    first, last = done.stderr.splitlines()[-2:]
    assert complaint in first
    assert "1 runs failed and are not in the table; go on with: fedpace compare timing.toml" in last
    assert "Traceback" not in done.stderr
    runs = json.loads((folder / "all/report.json").read_text())["runs"]
    assert list(runs) == ["sync", "fedbuff"]


def test_where_all_runs_fail_the_first_is_told_in_one_line(folder):
    (folder / "failing.py").write_text(FAILING)
    arguments = ("compare", "timing.toml", "--set", "policies.bad.use=failing:Failing")
    done = fedpace(folder, *arguments, "--policies", "bad", "--seeds", "2", "--out", "all")
    assert done.returncode == 2
    assert "all runs failed; bad, seed 0: policy Failing failed" in done.stderr


def test_a_single_run_that_diverges_says_so_in_a_line_and_by_its_exit_status(folder, drawn):
    done = fedpace(folder, "run", "config.toml", "--set", "train.lr=1e6", "--out", "wild")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("fedpace: timelyfl, seed 0: diverged at round 1: ")
    assert "diverged at round 1" in done.stdout
    again = fedpace(folder, "run", "config.toml", "--set", "train.lr=1e6", "--out", "wild", "--resume")
    assert again.returncode == 3


def test_a_run_is_extended_from_the_command_line(folder):
    run = ("run", "config.toml", "--out", "grown")
    succeeded(fedpace(folder, *run))
    succeeded(fedpace(folder, *run, "--resume", "--set", "stop.rounds=7"))
    done = fedpace(folder, *run, "--resume", "--set", "stop.rounds=3")
    assert done.returncode == 2
    assert "stop.rounds is 3 here, but the folder's run has gone 7 rounds" in done.stderr
    done = fedpace(folder, *run, "--resume", "--set", "train.lr=0.2")
    assert "train.lr is 0.2 here but 0.1 in the folder's run" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    succeeded(fedpace(folder, *run[:-1], "whole", "--set", "stop.rounds=7"))
    assert_same(folder / "whole", folder / "grown")


def test_a_grid_of_five_learning_rates_two_of_them_absurd_ends_with_a_complete_table(folder):
    grid = "compare.grid.train.lr=[0.001, 0.01, 0.1, 1e5, 1e6]"
    arguments = ("compare", "config.toml", "--set", grid, "--policies", "sync", "--seeds", "1")
    out = succeeded(fedpace(folder, *arguments, "--jobs", "1", "--out", "grid"))
    runs = json.loads((folder / "grid/report.json").read_text())["runs"]
    assert list(runs) == [f"sync-lr={lr}" for lr in ("0.001", "0.01", "0.1", "100000", "1e06")]
    assert [run["diverged"] is not None for (run,) in runs.values()] == [False] * 3 + [True] * 2
    assert " ".join(out.split()).count("diverged") == 2
    table = (folder / "grid/report.md").read_text()
    assert table.count("diverged at round") == 2
    assert table.count("finished") == 3
    assert "best of sync: sync-lr=0.1, final accuracy" in out
    before = (folder / "grid/sync-lr=1e06/seed-0/journal.jsonl").stat().st_mtime_ns
    again = succeeded(fedpace(folder, *arguments, "--jobs", "1", "--out", "grid", "--resume"))
    assert again == out
    assert (folder / "grid/sync-lr=1e06/seed-0/journal.jsonl").stat().st_mtime_ns == before
    assert "best of sync: sync-lr=0.1" in succeeded(fedpace(folder, "report", "grid"))
