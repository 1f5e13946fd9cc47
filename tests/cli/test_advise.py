"""`fedpace advise` as a user meets it."""

import json

from tests.cli.command import fedpace, succeeded

FEW = ("--policies", "sync,fedbuff", "--jobs", "1", "--hours", "1", "--timing-only")


def test_timings_are_told_and_a_config_is_written_that_runs(folder):
    done = fedpace(folder, "advise", "timing.toml", *FEW, "--aim", "value", "--out", "out")
    assert succeeded(done)
    assert "1. " in done.stdout
    assert "Run the first: fedpace run out/advised.toml" in done.stdout
    first = json.loads((folder / "out/advice.json").read_text())["first"]
    again = fedpace(folder, "run", "out/advised.toml", "--set", "stop.rounds=3", "--out", "run")
    assert succeeded(again)
    assert first in again.stdout


def test_json_is_all_that_is_printed_where_it_is_asked_for(folder):
    done = fedpace(folder, "advise", "timing.toml", *FEW, "--aim", "value", "--out", "out", "--json")
    assert json.loads(done.stdout) == json.loads((folder / "out/advice.json").read_text())


def test_mistakes_are_one_line(folder):
    for arguments, words in (
        (("--aim", "fast"), "there is no aim 'fast'"),
        (("--policies", "snyc"), "did you mean 'sync'?"),
        (("--at-once", "0"), "at_once is 0"),
        (("--aim", "money"), "nothing has a price"),
        (("--within", "soon"), "give a real time"),
    ):
        done = fedpace(folder, "advise", "timing.toml", "--out", "out", *arguments)
        assert done.returncode == 2
        assert words in done.stderr
        assert done.stderr.count("\n") == 1


def test_where_nothing_can_be_trained_timings_are_told_and_the_status_is_4(folder):
    done = fedpace(folder, "advise", "timing.toml", *FEW[:-1], "--aim", "value", "--out", "out")
    assert done.returncode == 4
    assert "the task has no model" in done.stdout
    assert (folder / "out/advised.toml").exists()
    again = fedpace(folder, "advise", "timing.toml", *FEW[:-1], "--aim", "value", "--out", "out")
    assert again.returncode == 2
    assert "use --resume, --overwrite or another folder" in again.stderr
