from pathlib import Path

import pytest

from fedpace.core.errors import ConfigError
from fedpace.report.trackers import settings
from fedpace.report.trackers.settings import TrackSettings, check_installed, find_place


def test_trackers_are_one_name_a_list_or_names_with_commas():
    assert TrackSettings().trackers == ()
    assert TrackSettings(to="mlflow").trackers == ("mlflow",)
    assert TrackSettings(to="mlflow, wandb").trackers == ("mlflow", "wandb")
    assert TrackSettings(to=("wandb", "mlflow", "wandb")).trackers == ("wandb", "mlflow")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"to": "tensorbord"}, r"there is no tracker 'tensorbord' \(did you mean 'tensorboard'\?\)"),
        ({"to": ("mlflow", "x")}, "there is no tracker 'x'; known are mlflow, tensorboard, wandb"),
        ({"uri": ""}, "uri is empty; give it, or leave it out"),
    ],
)
def test_a_wrong_setting_is_one_line(values, message):
    with pytest.raises(ConfigError, match=message):
        TrackSettings(**values)


def test_a_missing_package_is_one_line_that_says_what_to_install(monkeypatch):
    monkeypatch.setattr(settings, "find_spec", lambda name: None)
    check_installed(())
    with pytest.raises(ConfigError) as error:
        check_installed(("mlflow", "wandb"))
    assert str(error.value) == (
        "the package mlflow is missing; install it with: pip install 'fedpace[mlflow]'"
    )


def test_settings_travel_to_another_process():
    given = TrackSettings(to=("mlflow",), name="x", folder=Path("/a b"), uri="http://h", offline=True)
    assert TrackSettings.from_json(given.to_json()) == given
    assert TrackSettings.from_json(TrackSettings(to="wandb").to_json()) == TrackSettings(to="wandb")


def test_files_go_below_the_runs_unless_another_place_is_given(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    root, plain = Path("/runs/a b"), TrackSettings()
    assert find_place("tensorboard", plain, root).look == "tensorboard --logdir '/runs/a b/tensorboard'"
    assert find_place("mlflow", plain, root).where == "sqlite:////runs/a b/mlflow.db"
    assert find_place("mlflow", TrackSettings(uri="http://host:5000"), root).look == "http://host:5000"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://other")
    assert find_place("mlflow", plain, root).where == "http://other"
    offline = TrackSettings(offline=True, folder=Path("/x"))
    assert find_place("wandb", offline, root).look == "wandb sync /x/wandb/offline-run-*"
    assert find_place("tensorboard", offline, root).folder == Path("/x")


def test_files_alone_are_named_also_where_wandb_itself_was_told_to_write_no_more(monkeypatch):
    monkeypatch.delenv("WANDB_MODE", raising=False)
    assert find_place("wandb", TrackSettings(), Path("runs")).where == "your account at W&B"
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert (
        find_place("wandb", TrackSettings(), Path("runs")).look == "wandb sync runs/wandb/offline-run-*"
    )
