"""The command line as a user meets it: what it prints, writes and answers to the shell."""

import json

import pytest

from tests.cli.command import fedpace, fedpace_process, succeeded


def test_run_leaves_journal_weights_table_and_figure(folder):
    out = succeeded(
        fedpace_process(folder, "run", "config.toml", "--out", "result", "--set", "stop.rounds=3")
    )
    names = {path.name for path in (folder / "result").iterdir()}
    assert names == {
        "journal.jsonl",
        "weights.pt",
        "snapshot.pt",
        "snapshots.json",
        "report.md",
        "report.json",
        "timings.json",
        "client_data.json",
        "report.html",
        "figure.png",
        "figure.svg",
    }
    assert "timelyfl" in out
    assert "result/figure.png" in out
    (run,) = json.loads((folder / "result/report.json").read_text())["runs"]["timelyfl"]
    assert run["rounds"] == 3
    assert "gives the same commands" in succeeded(fedpace(folder, "replay", "result")).replace(
        "\n", " "
    )


def test_compare_runs_all_policies_with_the_same_seeds(folder):
    out = succeeded(fedpace(folder, "compare", "config.toml", "--out", "all", "--jobs", "2"))
    runs = json.loads((folder / "all/report.json").read_text())["runs"]
    assert list(runs) == ["timelyfl", "sync"]
    assert [[run["seed"] for run in group] for group in runs.values()] == [[0, 1], [0, 1]]
    assert "Mean ± standard deviation over 2 seeds" in out
    again = succeeded(fedpace(folder, "report", "all"))
    assert again.splitlines()[:12] == out.splitlines()[:12]
    again = succeeded(fedpace(folder, "report", "all", "--target", "0.3", "--first", "sync"))
    assert again.index("sync") < again.index("timelyfl")
    assert "to 30%" in again


def test_a_report_counts_only_the_runs_that_were_asked_for(folder):
    arguments = ["compare", "timing.toml", "--out", "all", "--jobs", "1"]
    succeeded(fedpace(folder, *arguments))
    succeeded(fedpace(folder, *arguments, "--overwrite", "--policies", "sync", "--seeds", "1"))
    runs = json.loads((folder / "all/report.json").read_text())["runs"]
    assert {label: len(group) for label, group in runs.items()} == {"sync": 1}
    succeeded(fedpace(folder, "run", "timing.toml", "--out", "all/twin"))
    done = fedpace(folder, "report", "all")
    assert done.returncode == 2
    assert "are both timelyfl with seed 0" in done.stderr


def test_the_first_bad_policy_of_a_comparison_is_found_before_anything_runs(folder):
    done = fedpace(folder, "compare", "config.toml", "--out", "all", "--set", "policies.sync.n=13")
    assert done.returncode == 2
    assert "n is 13, but 12 clients are in the fleet" in done.stderr
    assert not (folder / "all").exists()


def test_a_finished_comparison_resumes_to_its_own_report_without_running(folder):
    arguments = ["compare", "timing.toml", "--out", "all", "--seeds", "1", "--jobs", "1"]
    succeeded(fedpace(folder, *arguments))
    before = (folder / "all/sync/seed-0/journal.jsonl").stat().st_mtime_ns
    succeeded(fedpace(folder, *arguments, "--resume"))
    assert (folder / "all/sync/seed-0/journal.jsonl").stat().st_mtime_ns == before


def test_a_report_names_runs_that_are_gone_and_labels_that_never_were(folder):
    succeeded(fedpace(folder, "compare", "timing.toml", "--out", "all", "--seeds", "1", "--jobs", "1"))
    (folder / "all/sync/seed-0/journal.jsonl").unlink()
    shown = succeeded(fedpace(folder, "report", "all"))
    assert "sync, seed 0: in the last report, but its journal is gone" in shown
    done = fedpace(folder, "report", "all", "--first", "sync")
    assert done.returncode == 2
    assert "there is no label 'sync'" in done.stderr


def test_a_report_mixes_unlike_runs_only_where_it_is_told_to(folder):
    run = ("run", "timing.toml", "--set", "stop.rounds=1")
    succeeded(fedpace(folder, *run, "--out", "all/one"))
    other = ("--policy", "sync", "--set", "fleet.kind=distribution", "--out", "all/two")
    succeeded(fedpace(folder, *run, *other))
    done = fedpace(folder, "report", "all")
    assert done.returncode == 2
    assert "all/one and all/two are runs of unlike things: they differ in fleet.kind ('phones'" in (
        done.stderr
    )
    assert not (folder / "all/report.json").exists()
    assert "sync" in succeeded(fedpace(folder, "report", "all", "--mix"))


def test_what_is_set_on_the_command_line_beats_the_policys_own_table(folder):
    with (folder / "timing.toml").open("a") as file:
        file.write("[policies.own]\nuse = 'sync'\nstop.rounds = 50\n")
    arguments = ["run", "timing.toml", "--policy", "own", "--out", "own"]
    succeeded(fedpace(folder, *arguments, "--set", "stop.rounds=2"))
    assert '"rounds": 2,' in (folder / "own/report.json").read_text()


def test_a_policy_beside_its_config_is_found_from_anywhere(folder):
    inner = folder / "inner"
    inner.mkdir()
    (inner / "beside.py").write_text("from fedpace.policies.sync import Sync\n")
    (inner / "c.toml").write_text(
        "policy = 'x'\n[policies.x]\nuse = 'beside:Sync'\n[task]\nkind = 'timing'\n"
    )
    arguments = ["--set", "stop.rounds=2", "--out", "o"]
    succeeded(fedpace(folder, "run", "inner/c.toml", *arguments))
    succeeded(fedpace(folder, "compare", "inner/c.toml", "--seeds", "1", *arguments[:2], "--out", "p"))


def test_timing_only_says_so_in_its_report(folder):
    out = succeeded(fedpace(folder, "run", "config.toml", "--timing-only", "--out", "timing"))
    assert "participation" in out
    assert not (folder / "timing/weights.pt").exists()


@pytest.mark.parametrize("command", ["policies", "tasks", "fleets", "settings"])
def test_what_there_is_can_be_listed_with_settings_and_defaults(folder, command):
    out = succeeded(fedpace(folder, command))
    expected = {
        "policies": ["timelyfl", "fedbuff", "sync", "max_epochs", "staleness.exponent"],
        "tasks": ["fashion-mnist", "idx", "timing", "folder", "required"],
        "fleets": ["phones", "distribution", "explicit", "behaviour.jitter"],
        "settings": ["[policies]", "train.lr", "0.05", "compare.seeds"],
    }
    for word in expected[command]:
        assert word in out


def test_help_names_every_command(folder):
    out = succeeded(fedpace(folder, "--help"))
    for command in ("run", "compare", "report", "replay", "policies", "tasks", "fleets", "settings"):
        assert command in out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run", "missing.toml"], "there is no file missing.toml"),
        (["run", "."], ". is a folder"),
        (["run", "config.toml", "--set", "stop.round=3"], "did you mean 'rounds'"),
        (["run", "config.toml", "--set", "stop"], "write it as key=value"),
        (["run", "config.toml", "--set", "seed.x=1"], "seed is {'x': 1}"),
        (["run", "config.toml", "--set", "name.x=1"], "name is a value, not a table"),
        (["run", "config.toml", "--set", "policies.timelyfl.k=12"], "set k between 1 and 8"),
        (["run", "config.toml", "--workers", "0"], "workers is 0"),
        (["run", "config.toml", "--device", "tpu"], "no device 'tpu'; use cpu, cuda or cuda:N"),
        (["compare", "config.toml", "--device", "gpu"], "no device 'gpu'; use cpu, cuda or cuda:N"),
        (["run", "config.toml", "--device", "cuda:99"], "device is cuda:99, but"),
        (["run", "config.toml", "--policy", "magic"], "there is no policy 'magic'"),
        (["compare", "config.toml", "--policies", ""], "--policies names nobody"),
        (["compare", "config.toml", "--policies", "sync,sync"], "named twice"),
        (["compare", "config.toml", "--seeds", "0"], "seeds is 0"),
        (["compare", "config.toml", "--jobs", "0"], "jobs is 0"),
        (
            ["report", "nowhere"],
            "there is no folder nowhere; runs come first, such as: fedpace compare",
        ),
        (["report", "config.toml"], "config.toml is a file; give the folder of a run"),
        (["report", "."], "there is no journal.jsonl in ."),
        (["replay", "config.toml"], "line 1: not JSON"),
        (["trace", "config.toml"], "give the journal.jsonl of a run"),
        (["status", "nonsense"], "the address is 'nonsense'; give HOST:PORT"),  # not: keys are missing
        (["page", "nonsense"], "the address is 'nonsense'; give HOST:PORT"),
        (["drain", "nonsense", "me"], "the address is 'nonsense'; give HOST:PORT"),
        (["run", "broken.toml"], "broken.toml is not valid TOML"),
        (["run", "config.toml", "--out", "config.toml"], "config.toml is a file"),
    ],
)
def test_a_mistake_is_one_line_with_exit_code_2_and_nothing_is_left_behind(
    folder, arguments, complaint
):
    (folder / "broken.toml").write_text("clients = = 3")
    before = sorted(path.name for path in folder.iterdir())
    done = fedpace(folder, *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


def test_a_process_of_its_own_gives_the_shell_the_same_line_and_exit_code(folder):
    arguments = ["run", "config.toml", "--set", "stop.round=3"]
    own = fedpace_process(folder, *arguments)
    assert (own.returncode, own.stdout, own.stderr) == fedpace(folder, *arguments)
    assert "did you mean 'rounds'" in own.stderr


def test_a_label_cannot_lead_out_of_the_folder(folder):
    done = fedpace(
        folder, "compare", "config.toml", "--set", 'policies."../x".use=sync', "--policies", "../x"
    )
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_journal_that_breaks_off_at_a_line_end_is_not_taken_for_a_run(folder):
    succeeded(fedpace(folder, "run", "timing.toml", "--out", "result"))
    journal = folder / "result/journal.jsonl"
    journal.write_text("".join(journal.read_text().splitlines(keepends=True)[:-1]))
    done = fedpace(folder, "report", "result")
    assert done.returncode == 2
    assert "breaks off before its end" in done.stderr


def test_a_broken_journal_is_named_with_its_line(folder):
    succeeded(fedpace(folder, "run", "timing.toml", "--out", "result"))
    journal = folder / "result/journal.jsonl"
    journal.write_bytes(journal.read_bytes()[:-30])
    done = fedpace(folder, "report", "result")
    assert done.returncode == 2
    assert "journal.jsonl, line 188: not JSON; it is cut or damaged" in done.stderr
    assert "journal.jsonl, line" in done.stderr
