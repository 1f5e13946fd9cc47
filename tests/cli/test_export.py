"""`fedpace export` and `--track`, as a user meets them."""

from importlib.util import find_spec

import pytest

from fedpace.report.trackers import settings as tracker_settings
from fedpace.runs.simulate import simulate
from tests.cli.command import fedpace
from tests.cli.test_report_formats import TIMING


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    simulate(TIMING, policy="sync", out=folder / "all/sync")
    (folder / "empty").mkdir()
    (folder / "file").touch()
    return folder


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("all", "--to", "tensorbord"), "no tracker 'tensorbord' (did you mean 'tensorboard'?)"),
        (("empty", "--to", "mlflow"), "there is no journal.jsonl in empty"),
        (("nowhere", "--to", "mlflow"), "nowhere"),
        (("all", "--to", "mlflow", "--out", "file"), "file is a file; give a folder"),
    ],
)
def test_a_mistake_is_one_line(runs, arguments, message, monkeypatch):
    monkeypatch.setattr(tracker_settings, "find_spec", lambda name: object())
    done = fedpace(runs, "export", *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_missing_package_is_one_line_that_says_what_to_install(runs, monkeypatch):
    monkeypatch.setattr(tracker_settings, "find_spec", lambda name: None)
    done = fedpace(runs, "export", "all", "--to", "wandb")
    assert done.stderr == (
        "fedpace: the package wandb is missing; install it with: pip install 'fedpace[wandb]'\n"
    )
    (runs / "timing.toml").write_text('clients = 4\ntask = {kind = "timing"}\nstop = {rounds = 2}\n')
    done = fedpace(runs, "run", "timing.toml", "--out", "tracked", "--track", "mlflow")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "pip install 'fedpace[mlflow]'" in done.stderr
    assert not (runs / "tracked").exists()


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="tensorboard is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_runs_go_into_tensorboard_and_the_command_says_how_to_see_them(runs):
    for _ in range(2):
        done = fedpace(runs, "export", "all", "--to", "tensorboard", "--out", "logs")
        assert done.stdout == "tensorboard: 1 run in logs; see them with: tensorboard --logdir logs\n"
    assert len(list((runs / "logs").glob("run/sync/seed-0/events.*"))) == 1
