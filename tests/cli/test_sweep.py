"""`fedpace sweep` as a user meets it: choice on seeds of its own, resuming, mistakes in one line."""

import json
import re
import shutil

import pytest

from fedpace.cli.sweep import parse_grid
from fedpace.core.errors import ConfigError
from tests.cli.command import fedpace, succeeded
from tests.cli.conftest import CONFIG

GRID = ("--grid", "train.lr=0.01,0.1,1e6", "--grid", "policies.sync.n=2,4")
QUICK = ("--choose-seeds", "1", "--seeds", "2", "--jobs", "1", "--probe", "0")
QUICK += ("--set", "stop.rounds=2", "--set", "train.batch_size=3")  # many steps with few samples


@pytest.fixture(scope="module")
def swept(tmp_path_factory, few_clothes):
    """A folder in which a sweep is over, and what it printed."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "config.toml").write_text(CONFIG.format(clothes=few_clothes))
    arguments = ("sweep", "config.toml", *GRID, *QUICK, "--by", "value", "--out", "out")
    return folder, arguments, fedpace(folder, *arguments)


def record(folder):
    return json.loads((folder / "out/sweep.json").read_text())


def journals(folder):
    return {
        str(path.relative_to(folder / "out")): path.stat().st_mtime_ns
        for path in (folder / "out").rglob("journal.jsonl")
    }


def test_the_best_of_each_policy_is_chosen_on_some_seeds_and_reported_on_others(swept):
    folder, _, done = swept
    out = succeeded(done)
    found = record(folder)
    assert (found["choose_seeds"], found["seeds"]) == ([100], [0, 1])
    assert len(found["cells"]) == 3 + 6
    chosen = {policy: best["label"] for policy, best in found["best"].items()}
    assert all("lr=0.1" in label for label in chosen.values())
    reported = {label: seeds for label, seeds in _runs(folder).items() if 0 in seeds}
    assert reported == {label: [0, 1, 100] for label in chosen.values()}
    assert "chosen on seed 100, reported on seeds 0 to 1" in " ".join(out.split())
    runs = json.loads((folder / "out/report.json").read_text())["runs"]
    shown = {label: [run["seed"] for run in group] for label, group in runs.items()}
    assert shown == {label: [0, 1] for label in chosen.values()}
    for name in ("sweep.md", "sweep.png", "sweep.svg", "report.md"):
        assert (folder / "out" / name).exists()


def _runs(folder):
    found = {}
    for path in sorted(journals(folder)):
        label, seed, _ = path.split("/")
        found.setdefault(label, []).append(int(seed.removeprefix("seed-")))
    return {label: sorted(seeds) for label, seeds in found.items()}


def test_settings_that_diverge_are_named_and_never_chosen(swept):
    _, _, done = swept
    out = " ".join(done.stdout.split())
    assert "timelyfl: counted as worst: lr = 1e+06 (1 diverged)" in out
    assert (
        "sync: counted as worst: lr = 1e+06, n = 2 (1 diverged); lr = 1e+06, n = 4 (1 diverged)" in out
    )


def test_runs_are_counted_before_they_begin(swept):
    _, _, done = swept
    assert "choose: 9 runs, 1 at a time" in done.stderr
    assert "report: 4 runs, of the chosen settings" in done.stderr


def test_a_report_of_the_folder_is_about_the_chosen_settings(swept):
    folder, _, _ = swept
    before = json.loads((folder / "out/report.json").read_text())
    (folder / "out/report.json").unlink()
    out = " ".join(succeeded(fedpace(folder, "report", "out")).split())
    after = json.loads((folder / "out/report.json").read_text())
    assert (list(after["runs"]), after["title"]) == (list(before["runs"]), before["title"])
    assert "Best settings by last accuracy" in out
    assert "Mean ± standard deviation over 2 seeds" in out
    assert "lr=0.01" not in out


def test_a_sweep_that_is_over_runs_nothing_again_and_a_changed_grid_only_what_is_new(swept, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(swept[0], folder)
    arguments = swept[1]
    before = journals(folder)
    done = fedpace(folder, *arguments)
    assert done.returncode == 2
    assert "holds a run already; use --resume, --overwrite" in done.stderr
    again = succeeded(fedpace(folder, *arguments, "--resume"))
    assert journals(folder) == before
    assert again == swept[2].stdout
    # Another key, whose default is one of its values: those cells are there already.
    grid = ("--grid", "train.lr=0.01,0.1", "--grid", "train.epochs=1,2", "--policies", "timelyfl")
    changed = ("sweep", "config.toml", *grid, *QUICK, "--by", "value", "--out", "out")
    listed = succeeded(fedpace(folder, *changed, "--dry-run"))
    assert "timelyfl: lr = 0.1, epochs = 1; seed 100 (1 there)" in listed
    assert "4 settings x 1 seeds, 2 of them to be run" in " ".join(listed.split())
    succeeded(fedpace(folder, *changed, "--resume"))
    after = journals(folder)
    assert {path: after[path] for path in before} == before
    new = {path for path in after if path not in before and "seed-100" in path}
    assert new == {
        "timelyfl-lr=0.01-epochs=2/seed-100/journal.jsonl",
        "timelyfl-lr=0.1-epochs=2/seed-100/journal.jsonl",
    }


def test_a_dry_run_lists_the_runs_and_runs_none(folder):
    arguments = ("sweep", "config.toml", *GRID, "--target", "0.5", "--dry-run", "--out", "out")
    out = succeeded(fedpace(folder, *arguments))
    assert out.count("seeds 100 to 101") == 9
    assert "18 runs to choose by time to main metric 0.5: 9 settings x 2 seeds, 18 of" in out
    assert "then 4 to report: 2 policies x seeds 0 to 1" in out
    assert not (folder / "out").exists()


def test_first_runs_are_measured_told_and_gone_on_with(folder):
    arguments = ("--grid", "train.lr=0.01,0.1", "--policies", "sync", "--jobs", "1", "--by", "value")
    few = ("--choose-seeds", "2", "--seeds", "1", "--probe", "0.01", "--out", "out")
    done = fedpace(folder, "sweep", "config.toml", *arguments, *few)
    succeeded(done)
    assert re.search(
        r"choose: \d( of 4)? runs.*, 1 at a time; the sweep will take about \d", done.stderr
    )
    whole = ("--policy", "sync", "--seed", "100", "--set", "train.lr=0.01", "--out", "whole")
    succeeded(fedpace(folder, "run", "config.toml", *whole))
    probed = (folder / "out/sync-lr=0.01/seed-100/journal.jsonl").read_text().splitlines()
    assert probed[1:] == (folder / "whole/journal.jsonl").read_text().splitlines()[1:]


def test_a_sweep_without_a_model_is_refused(folder):
    done = fedpace(folder, "sweep", "timing.toml", *GRID)
    assert "settings are chosen by tests of a model, but a timing-only run has none" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "there is nothing to vary; set [sweep.grid], or give --grid train.lr=0.05,0.1"),
        (("--grid", "train.lr"), "--grid 'train.lr': write it as key=a,b,c"),
        (("--grid", "train.lrr=1"), "has 'train.lrr' = 1: unknown key 'train.lrr' (did you mean 'lr'"),
        (("--grid", "train.lr=1,x"), "has 'train.lr' = 'x': train.lr is 'x': input should be"),
        (("--grid", "policies.sync.n=2,99"), "sync-n=99: n is 99, but 12 clients are in the fleet"),
        (("--grid", "policies.fedbuff.k=2"), "'fedbuff' is not compared; known are timelyfl, sync"),
        (("--grid", "train.lr=1", "--grid", "train.lr=2"), "--grid has 'train.lr' twice"),
        (("--grid", "train.lr=1", "--target", "0.5", "--at-hours", "1"), "at_hours is for a choice"),
        (("--grid", "train.lr=1", "--choose-seeds", "0"), "choose_seeds is 0"),
        (("--grid", "train.lr=1", "--set", "sweep.choose_from=1"), "seed 1 is among those that"),
        (("--grid", "train.lr=1", "--by", "luck"), "sweep.by is 'luck'"),
        (("--grid", "train.lr=1", "--by", "time", "--set", "compare.targets=[]"), "no targets"),
    ],
)
def test_a_mistake_is_one_line_before_anything_runs(folder, arguments, complaint):
    before = sorted(path.name for path in folder.iterdir())
    done = fedpace(folder, "sweep", "config.toml", *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(path.name for path in folder.iterdir()) == before


def test_values_are_read_as_in_a_config():
    assert parse_grid(["a.b=1,2.5", "c=true,x", 'd=["p", "q"],["r"]']) == {
        "a.b": [1, 2.5],
        "c": [True, "x"],
        "d": [["p", "q"], ["r"]],
    }
    with pytest.raises(ConfigError, match="write it as"):
        parse_grid(["a="])
