"""What trackers have of a run, read back by their own readers. Each part needs its package."""

import struct
import subprocess
from dataclasses import replace
from importlib.util import find_spec

import pytest

from fedpace.core.facts import Finished
from fedpace.report.trackers.exporter import Trackers, export_run
from fedpace.report.trackers.settings import TrackSettings
from tests.cli.command import COMMAND
from tests.report.trackers.conftest import header_of, tell, write

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def needs(package):
    reason = f"{package} is not installed; make test-trackers"
    return pytest.mark.skipif(find_spec(package) is None, reason=reason)


def export(run, root, /, **settings):
    export_run(run, Trackers(TrackSettings(**settings), root, strict=True))


def diverged_folder(folder):
    header = header_of("wild")
    return write(folder, header, [*tell(header)[:-1], Finished(6.5, "diverged at round 2", 2)])


@pytest.fixture
def scalars():
    """Reads (time, round, value) of a tag by TensorBoard's own reader."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def read(folder, tag="test/accuracy"):
        events = EventAccumulator(str(folder))
        events.Reload()
        return [(one.wall_time, one.step, round(one.value, 6)) for one in events.Scalars(tag)]

    return read


@needs("tensorboard")
def test_tensorboard_has_metrics_by_round_and_by_the_time_of_the_run(run_folder, tmp_path, scalars):
    export(run_folder(), tmp_path, to="tensorboard")
    folder = tmp_path / "tensorboard" / "timely" / "seed-7"
    assert scalars(folder) == [(0.0, 0, 0.1), (4.0, 1, 0.5), (6.5, 2, 0.75)]
    assert scalars(folder, "test/loss")[-1] == (6.5, 2, 0.5)
    assert scalars(folder, "total/up_bytes") == [(4.0, 1, 1000), (6.5, 2, 2000)]
    assert scalars(folder, "total/money") == [(4.0, 1, 4.0), (6.5, 2, 7.0)]
    assert scalars(folder, "round/staleness") == [(4.0, 1, 0.0), (6.5, 2, 1.0)]
    assert scalars(folder, "clients/participation")[-1][2] == pytest.approx(1 / 3, abs=1e-6)
    assert scalars(folder, "clients/at_work") == [(4.0, 1, 1.0), (6.5, 2, 1.0)]


@needs("tensorboard")
def test_tensorboard_has_settings_as_hyperparameters(run_folder, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    export(run_folder(), tmp_path, to="tensorboard")
    export(diverged_folder(tmp_path / "wild"), tmp_path, to="tensorboard")
    found = {}
    for label in ("timely", "wild"):
        events = EventAccumulator(str(tmp_path / "tensorboard" / label / "seed-7"))
        events.Reload()
        found[label] = events.PluginTagToContent("hparams")
    start = metadata.parse_session_start_info_plugin_data(
        found["timely"][metadata.SESSION_START_INFO_TAG]
    )
    assert start.group_name == "A study/timely"
    assert start.hparams["policy.k"].number_value == 2
    assert start.hparams["task.kind"].string_value == "timing"
    ends = {
        label: metadata.parse_session_end_info_plugin_data(one[metadata.SESSION_END_INFO_TAG]).status
        for label, one in found.items()
    }
    assert ends == {"timely": 1, "wild": 2}  # success, failure


@needs("tensorboard")
def test_a_run_that_is_exported_again_is_in_tensorboard_once(run_folder, tmp_path, scalars):
    folder = tmp_path / "logs" / "Study-2" / "timely" / "seed-7"
    for upto in (9, None, None):
        export(
            run_folder(upto=upto), tmp_path, to="tensorboard", folder=tmp_path / "logs", name="Study 2"
        )
        (run_folder() / "journal.jsonl.part").unlink(missing_ok=True)
    assert len(list(folder.iterdir())) == 1
    assert len(scalars(folder)) == 3


@pytest.fixture
def mlflow_client(tmp_path, monkeypatch):
    """MLflow with a store in a file, and nothing that goes over a network."""
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("DO_NOT_TRACK", "true")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    from mlflow import MlflowClient

    return MlflowClient


@needs("mlflow")
def test_mlflow_has_one_experiment_with_a_run_for_each_policy_and_seed(
    run_folder, tmp_path, mlflow_client
):
    folders = [run_folder("timely", 7), run_folder("sync", 7), run_folder("timely", 8)]
    for folder in [*folders, diverged_folder(tmp_path / "wild"), folders[0]]:
        export(folder, tmp_path, to="mlflow")
    client = mlflow_client(f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("A study")
    runs = {run.info.run_name: run for run in client.search_runs([experiment.experiment_id])}
    assert sorted(runs) == ["sync seed 7", "timely seed 7", "timely seed 8", "wild seed 7"]
    one = runs["timely seed 7"]
    history = client.get_metric_history(one.info.run_id, "test/accuracy")
    assert sorted((m.timestamp, m.step, m.value) for m in history) == [
        (0, 0, 0.1),
        (4000, 1, 0.5),
        (6500, 2, 0.75),
    ]
    assert len(client.get_metric_history(one.info.run_id, "total/money")) == 2
    assert (one.data.params["policy.k"], one.data.params["task.kind"]) == ("2", "timing")
    tags = one.data.tags
    assert (tags["fedpace.label"], tags["fedpace.seed"], tags["fedpace.state"]) == (
        "timely",
        "7",
        "finished",
    )
    assert (one.info.status, runs["wild seed 7"].info.status) == ("FINISHED", "FAILED")
    assert not (tmp_path / "mlruns").exists()  # nothing lies about in the current folder


@needs("mlflow")
def test_mlflow_goes_on_with_a_run_that_has_come_further(run_folder, tmp_path, mlflow_client):
    store = f"sqlite:///{tmp_path}/elsewhere.db"
    export(run_folder(upto=9), tmp_path, to="mlflow", uri=store, name="Other")
    longer = header_of(rounds=5)
    whole = write(tmp_path / "longer", longer, tell(longer))
    export(whole, tmp_path, to="mlflow", uri=store, name="Other")
    client = mlflow_client(store)
    number = client.get_experiment_by_name("Other").experiment_id
    (run,) = client.search_runs([number])
    assert len(client.get_metric_history(run.info.run_id, "test/accuracy")) == 3
    assert len(client.get_metric_history(run.info.run_id, "round/clients")) == 2


@needs("mlflow")
def test_mlflows_store_of_files_takes_runs_where_it_is_allowed(
    run_folder, tmp_path, mlflow_client, monkeypatch
):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = (tmp_path / "store").as_uri()
    for _ in range(2):
        export(run_folder(), tmp_path, to="mlflow", uri=store)
    client = mlflow_client(store)
    (run,) = client.search_runs([client.get_experiment_by_name("A study").experiment_id])
    history = client.get_metric_history(run.info.run_id, "test/loss")
    assert [(m.timestamp, m.step, m.value) for m in history] == [
        (0, 0, 2.5),
        (4000, 1, 1.5),
        (6500, 2, 0.5),
    ]


def wandb_records(path):
    """Records of a .wandb file: its header, then blocks of 32 KiB as LevelDB's log has them."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, place, parts = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while place + 7 <= len(data):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, place)
        parts += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last of several parts
            record = Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


@needs("wandb")
def test_wandbs_offline_files_have_settings_rows_and_state(run_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    export(run_folder(), tmp_path, to="wandb", offline=True)
    # The second time replaces the first. A process of its own: W&B takes an id once in each.
    command = (
        *COMMAND,
        "export",
        str(run_folder()),
        "--to",
        "wandb",
        "--offline",
        "--out",
        str(tmp_path),
    )
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (path,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    records = list(wandb_records(path))
    (run,) = [one.run for one in records if one.WhichOneof("record_type") == "run"][:1]
    assert (run.project, run.run_group, run.display_name) == ("A study", "timely", "timely seed 7")
    config = {item.key: item.value_json for item in run.config.update}
    assert (config["policy.k"], config["task.kind"]) == ("2", '"timing"')
    assert {"policy: timelyfl", "seed: 7", "group: A study"} <= set(run.tags)
    rows = [
        {item.key or item.nested_key[0]: item.value_json for item in one.history.item}
        for one in records
        if one.WhichOneof("record_type") == "history"
    ]
    tests = [row for row in rows if "test/accuracy" in row]
    assert [(row["round"], float(row["time_s"]), float(row["test/accuracy"])) for row in tests] == [
        ("0", 0.0, 0.1),
        ("1", 4.0, 0.5),
        ("2", 6.5, 0.75),
    ]
    assert len(rows) == 6


@needs("tensorboard")
def test_odd_labels_are_folders_of_one_name(tmp_path, scalars):
    header = header_of("a/../b c=0.1")
    folder = write(
        tmp_path / "run", replace(header, settings={"list": [1, 2], "none": None}), tell(header)
    )
    export(folder, tmp_path, to="tensorboard")
    assert scalars(tmp_path / "tensorboard" / "a-..-b-c=0.1" / "seed-7")
