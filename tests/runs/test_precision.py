"""The precision that holds in a run: as asked for, as it was begun, or by the device."""

import shutil
from dataclasses import replace

import pytest

import fedpace
from fedpace.core.errors import JournalError
from fedpace.core.journal import read
from fedpace.learn import device
from fedpace.runs import config as configs
from fedpace.runs.assembly import RunRequest
from fedpace.runs.comparison.compare import _with_earlier_precision
from fedpace.runs.comparison.workers import Entry
from fedpace.runs.folder import RunFolder

SMALL = {
    "clients": 4,
    "policy": "sync",
    "task": {"kind": "fashion-mnist", "model": "mlp"},
    "train": {"steps": 1},
    "stop": {"rounds": 1},
}


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """The folder of a run on a CPU."""
    folder = tmp_path_factory.mktemp("begun")
    fedpace.simulate(SMALL, out=folder)
    return folder


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(device, "default_precision", lambda name: "tf32")


def settled(where, folder=None, resume=False, **train):
    config = configs.load({**SMALL, "train": {**SMALL["train"], **train}})
    plans = configs.load_plan(config, None)
    folder = None if folder is None else RunFolder(folder)
    return RunRequest(*plans, folder, None, where, resume).settled().plan.train.precision


def test_a_journal_and_a_report_say_which_precision_held(begun):
    assert read(begun / "journal.jsonl")[0].run["train"]["precision"] == "float32"
    assert fedpace.open_result(begun).summary.to_dict()["precision"] == "float32"


def test_a_gpu_trains_in_tf32_unless_another_is_named(gpu):
    assert settled("cuda") == "tf32"
    assert settled("cuda", precision="by device") == "tf32"
    assert settled("cuda", precision="float32") == "float32"
    assert settled("cuda", precision="bf16") == "bf16"
    assert settled("cpu") == "float32"


def test_a_run_goes_on_with_the_precision_that_it_was_begun_with(gpu, begun):
    assert settled("cuda", begun, resume=True) == "float32"
    assert settled("cuda", begun, resume=False) == "tf32"


def test_a_run_of_before_there_was_a_choice_goes_on_in_float32(gpu, begun, tmp_path):
    older = tmp_path / "older"
    shutil.copytree(begun, older)
    journal = older / "journal.jsonl"
    journal.write_text(journal.read_text().replace('"precision":"float32",', ""))
    assert settled("cuda", older, resume=True) == "float32"
    assert (
        fedpace.simulate({**SMALL, "stop": {"rounds": 2}}, out=older, resume=True).summary.rounds == 2
    )


def test_another_precision_that_is_named_is_refused(begun):
    with pytest.raises(JournalError, match=r"train\.precision is 'tf32' here but 'float32' in the"):
        fedpace.simulate({**SMALL, "train": {"steps": 1, "precision": "tf32"}}, out=begun, resume=True)


def test_runs_of_a_comparison_that_are_still_to_begin_are_trained_as_those_that_are_there(begun):
    config = configs.load(SMALL)
    todo = [Entry("sync", 0, begun / "nothing"), Entry("sync", 1, begun)]
    assert _with_earlier_precision(config, todo).train.precision == "float32"
    assert _with_earlier_precision(config, todo[:1]).train.precision == "by device"
    named = replace(config, train=replace(config.train, precision="tf32"))
    assert _with_earlier_precision(named, todo) == named
