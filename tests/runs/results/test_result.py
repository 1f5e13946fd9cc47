"""A result gives its model, numbers, rows and figures, and shows itself in a few lines."""

import copy
import sys
import webbrowser

import numpy as np
import pytest
import torch
from torch import nn

import fedpace
from fedpace.core.journal import JOURNAL

CONFIG = {
    "name": "Toy",
    "clients": 4,
    "policy": "sync",
    "partition": {"kind": "iid"},
    "train": {"lr": 0.2},
    "stop": {"rounds": 4},
}
TIMING = {"clients": 5, "policy": "sync", "task": {"kind": "timing"}, "stop": {"rounds": 3}}


def toy_model():
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))


def toy(**more):
    draws = np.random.default_rng(0)
    inputs = draws.normal(size=(120, 3)).astype(np.float32)
    targets = (inputs.sum(1) > 0).astype(np.int64)
    return fedpace.Task(toy_model, (inputs[:80], targets[:80]), (inputs[80:], targets[80:]), **more)


@pytest.fixture(scope="module")
def task():
    return toy()


@pytest.fixture(scope="module")
def result(task):
    return fedpace.simulate(CONFIG, task=task)


@pytest.fixture(scope="module")
def on_disk(task, tmp_path_factory):
    return fedpace.simulate(CONFIG, task=task, out=tmp_path_factory.mktemp("run") / "toy")


@pytest.fixture(scope="module")
def timing():
    return fedpace.simulate(TIMING)


def accuracy_of(model, task):
    inputs, targets = task.test
    with torch.no_grad():
        return float((model(inputs).argmax(1) == targets).float().mean())


def test_the_model_has_the_weights_that_the_last_test_was_of(result, task):
    model = result.model()
    assert not model.training
    assert accuracy_of(model, task) == pytest.approx(result.metrics["accuracy"])
    assert result.metrics["accuracy"] > 0.6


def test_weights_are_a_state_dict_of_ones_own(result):
    result.weights["0.bias"].add_(100)
    toy_model().load_state_dict(result.weights)
    assert result.weights["0.bias"].abs().max() < 10


def test_a_run_on_disk_gives_the_same_model(on_disk, result, task):
    for name, value in result.weights.items():
        assert torch.equal(value, on_disk.weights[name])
    assert accuracy_of(on_disk.model(), task) == pytest.approx(on_disk.metrics["accuracy"])


def test_a_run_that_is_opened_needs_the_task_that_was_made_in_python(on_disk, task):
    opened = fedpace.open_result(on_disk.folder)
    with pytest.raises(fedpace.ConfigError, match=r"give it: result.model\(task\)"):
        opened.model()
    assert accuracy_of(opened.model(task), task) == pytest.approx(on_disk.metrics["accuracy"])


def test_a_model_that_the_weights_do_not_fit_is_refused(on_disk, task):
    wide = copy.copy(task)
    object.__setattr__(wide, "model", lambda: nn.Sequential(nn.Linear(3, 9)))
    with pytest.raises(fedpace.ConfigError, match=r"do not fit the task's model: .*give the run's own"):
        on_disk.model(wide)


def test_a_run_about_time_alone_has_no_weights_and_no_accuracy(timing):
    for ask in (lambda: timing.weights, timing.model, lambda: timing.accuracy):
        with pytest.raises(fedpace.ConfigError, match="about time alone"):
            ask()
    assert timing.metrics == {}


def test_accuracy_of_a_regression_names_what_there_is():
    inputs = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    pair = inputs, inputs.sum(1, keepdims=True)
    task = fedpace.Task(nn.Linear(2, 1), pair, pair, loss=nn.functional.mse_loss, metrics=["mae"])
    result = fedpace.simulate({**CONFIG, "stop": {"rounds": 1}}, task=task)
    with pytest.raises(fedpace.ConfigError, match=r"by mae, loss, .*use result.metric\('mae'\)"):
        _ = result.accuracy
    assert list(result.metrics) == ["mae", "loss"]


def test_rows_are_of_tests_rounds_or_clients(result, timing):
    tests = result.rows()
    assert [row["round"] for row in tests] == [0, 1, 2, 3, 4]
    assert tests[-1]["loss"] == result.metrics["loss"]
    assert tests[-1]["time_s"] == result.accuracy[-1][0]
    assert [row["updates"] for row in timing.rows("rounds")] == timing.summary.clients_per_round
    assert [row["client"] for row in timing.rows("clients")] == list(range(5))
    with pytest.raises(fedpace.ConfigError, match="there is no kind of rows 'round'"):
        timing.rows("round")


def test_a_frame_has_the_same_rows(result):
    pandas = pytest.importorskip("pandas", reason="frames need pandas, of the extra notebook")
    frame = result.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame["accuracy"]) == [row["accuracy"] for row in result.rows()]


def test_without_pandas_a_frame_says_what_there_is_instead(result, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fedpace.ConfigError, match=r"pip install 'fedpace\[notebook\]', or use rows"):
        result.frame()


def test_it_shows_itself_in_a_few_lines(result, on_disk):
    text = repr(result)
    assert len(text.splitlines()) == 4
    assert "sync, seed 0 (in memory)" in text
    assert "4 rounds are over" in text
    assert "accuracy" in text
    assert len(text) < 500
    assert str(on_disk.folder) in repr(on_disk)
    assert len(repr(result.summary)) < 200
    assert len(repr(result.journal)) < 200


def test_a_notebook_gets_a_table_and_a_curve(result, timing):
    html = result._repr_html_()
    assert "<svg" in html
    assert "accuracy" in html
    assert "<svg" not in timing._repr_html_()


def test_a_plot_is_drawn_on_axes_that_are_given(result):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    assert result.plot("loss", ax=axes) is axes
    assert "loss" in axes.get_ylabel()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["sync"]


def test_a_report_of_a_run_in_memory_needs_a_folder_and_writes_its_journal(
    result, timing, tmp_path, monkeypatch
):
    with pytest.raises(fedpace.ConfigError, match="give a folder"):
        result.report()
    shown = []
    monkeypatch.setattr(webbrowser, "open", shown.append)
    page = result.report(tmp_path / "mine", show=True)
    assert page.exists()
    assert shown == [page.resolve().as_uri()]
    assert list(fedpace.open_result(tmp_path / "mine").journal) == list(result.journal)
    assert result.report(tmp_path / "mine") == page
    with pytest.raises(fedpace.ConfigError, match="journal of another run"):
        timing.report(tmp_path / "mine")


def test_a_report_of_a_run_on_disk_lies_in_its_folder(on_disk):
    assert on_disk.report().parent == on_disk.folder
    assert (on_disk.folder / JOURNAL).exists()
