"""`[track]`: it is followed by a process of its own, and changes nothing about the run."""

import logging
from importlib.util import find_spec

import pytest

from fedpace.core.errors import ConfigError
from fedpace.report.trackers import settings as tracker_settings
from fedpace.runs import config as configs
from fedpace.runs.comparison.compare import compare
from fedpace.runs.simulate import simulate
from fedpace.runs.tracking import LiveTracking

TIMING = {
    "name": "Tracked",
    "clients": 4,
    "policy": "sync",
    "task": {"kind": "timing"},
    "stop": {"rounds": 3},
    "compare": {"policies": ["sync", "fedbuff"], "seeds": 1},
}
needs_tensorboard = pytest.mark.skipif(
    find_spec("tensorboard") is None, reason="tensorboard is not installed; make test-trackers"
)


@pytest.fixture
def installed(monkeypatch):
    """As if the packages of all trackers were there."""
    monkeypatch.setattr(tracker_settings, "find_spec", lambda name: object())


@pytest.fixture
def started(monkeypatch, installed):
    """What was followed, in place of a process."""
    followed = []
    monkeypatch.setattr(LiveTracking, "start", lambda self: None)
    monkeypatch.setattr(LiveTracking, "follow", lambda self, folder: followed.append(folder))
    return followed


def test_tracking_is_no_part_of_a_run_and_may_change_when_it_goes_on(tmp_path, started):
    plain = simulate(TIMING, out=tmp_path / "plain")
    tracked = simulate(TIMING | {"track": {"to": "mlflow", "name": "x"}}, out=tmp_path / "tracked")
    assert tracked.journal.path.read_bytes() == plain.journal.path.read_bytes()
    more = {"track": {"to": ["wandb"], "folder": "elsewhere"}, "stop": {"rounds": 5}}
    longer = simulate(TIMING | more, out=tmp_path / "tracked", resume=True)
    assert longer.summary.rounds == 5
    simulate(TIMING | {"stop": {"rounds": 5}}, out=tmp_path / "tracked", resume=True)


def test_a_run_that_is_over_already_is_shown_when_it_is_asked_for_again(tmp_path, started):
    simulate(TIMING, out=tmp_path / "a")
    started.clear()
    simulate(TIMING | {"track": {"to": "mlflow"}}, out=tmp_path / "a", resume=True)
    assert started == [tmp_path / "a"]


@pytest.mark.parametrize(
    ("track", "message"),
    [
        (
            {"to": "tensorbord"},
            r"\[track\] there is no tracker 'tensorbord' \(did you mean 'tensorboard'",
        ),
        ({"to": 3}, "track.to is 3"),
        ({"too": "mlflow"}, r"unknown key 'track.too' \(did you mean 'to'\?\)"),
        ({"to": "mlflow", "folder": ""}, "track.folder is empty"),
    ],
)
def test_a_wrong_setting_is_one_line(track, message):
    with pytest.raises(ConfigError, match=message):
        configs.load(TIMING | {"track": track})


def test_a_missing_package_is_found_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(tracker_settings, "find_spec", lambda name: None)
    wanted = TIMING | {"track": {"to": "wandb"}}
    with pytest.raises(ConfigError, match=r"pip install 'fedpace\[wandb\]'"):
        simulate(wanted, out=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"pip install 'fedpace\[wandb\]'"):
        compare(configs.load(wanted), tmp_path / "all")
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_memory_says_that_it_is_not_tracked(installed, caplog):
    with caplog.at_level(logging.WARNING, "fedpace.track"):
        simulate(TIMING | {"track": {"to": "mlflow"}})
    (record,) = caplog.records
    assert "a run in memory cannot be followed; give it a folder" in record.getMessage()


@needs_tensorboard
def test_the_runs_of_a_comparison_are_shown_while_they_go_on(tmp_path):
    settings = configs.load(TIMING | {"track": {"to": "tensorboard"}})
    compare(settings, tmp_path / "all", jobs=1)
    found = sorted((tmp_path / "all/tensorboard").glob("*/*/events.*"))
    assert [path.parent.parent.name for path in found] == ["fedbuff", "sync"]
    assert all(path.stat().st_size > 500 for path in found)


@needs_tensorboard
def test_a_tracker_that_fails_is_a_line_in_the_log_and_the_run_goes_on(tmp_path, caplog):
    (tmp_path / "file").touch()
    track = {"to": "tensorboard", "folder": str(tmp_path / "file")}
    with caplog.at_level(logging.WARNING, "fedpace.track"):
        result = simulate(TIMING | {"track": track}, out=tmp_path / "run")
    assert result.summary.rounds == 3
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 1
    assert messages[0].startswith("tensorboard: NotADirectoryError: ")
    assert messages[0].endswith("; it is told no more, and the run goes on")
