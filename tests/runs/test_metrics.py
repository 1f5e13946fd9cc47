"""Runs of tasks that are tested by something other than accuracy."""

import pytest
import torch
from torch import nn

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.core.facts import Evaluated
from fedpace.report.table import markdown

DRAW = torch.Generator().manual_seed(4)
X = torch.randn(400, 5, generator=DRAW)
Y = X @ torch.tensor([[1.0], [-2.0], [0.5], [0.0], [3.0]])
CONFIG = {
    "clients": 4,
    "policy": "sync",
    "partition": {"kind": "iid"},
    "train": {"lr": 0.05},
    "stop": {"rounds": 4},
}


def model():
    return nn.Linear(5, 1)


def regression(**options):
    return fedpace.Task(
        model, (X[:300], Y[:300]), (X[300:], Y[300:]), loss=nn.functional.mse_loss, **options
    )


def test_regression_without_accuracy_is_tested_and_shown_by_its_loss():
    result = fedpace.simulate(CONFIG, task=regression())
    losses = [value for _, value in result.metric()]
    assert result.summary.main.name == "loss"
    assert losses == [value for _, value in result.metric("loss")]
    assert losses[-1] < losses[0] / 4
    assert result.time_to(losses[2]) == result.metric()[2][0]
    assert result.summary.accuracy == []
    table = markdown({"sync": [result.summary]}, (losses[2],))
    assert f"loss ≤ {losses[2]:g} (" in table
    assert "best loss | final loss" in table
    assert "0.0 ± 0.0" not in table


def test_journals_carry_all_metrics_and_targets_may_be_of_any(tmp_path):
    task = regression(metrics=("r2", "mae"))
    aims = {"rounds": 50, "target": 0.5, "metric": "mae"}
    result = fedpace.simulate(CONFIG | {"stop": aims}, task=task, out=tmp_path / "run")
    tests = [fact for fact in result.journal if isinstance(fact, Evaluated)]
    assert all(list(fact.metrics) == ["r2", "mae", "loss"] for fact in tests)
    assert result.summary.finished == "the target mae 0.5 is reached"
    assert [fact.metrics["mae"] <= 0.5 for fact in tests] == [False] * (len(tests) - 1) + [True]
    assert [one.name for one in result.journal.header.context.metrics] == ["r2", "mae", "loss"]
    assert result.summary.best("r2") == max(value for _, value in result.metric("r2"))


def test_a_run_that_is_resumed_recalls_all_metrics(tmp_path):
    task = regression(metrics="r2")
    whole = fedpace.simulate(CONFIG, task=task, out=tmp_path / "whole")

    class Enough(Exception):
        pass

    def stop(standing):
        if standing.round == 2:
            raise Enough

    options = {"task": task, "out": tmp_path / "cut", "snapshot_every_s": 0.0}
    with pytest.raises(Enough):
        fedpace.simulate(CONFIG, **options, watches=(stop,))
    assert list(fedpace.simulate(CONFIG, **options, resume=True).journal) == list(whole.journal)


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"stop": {"rounds": 2, "target": 0.9, "metric": "accuracy"}}, "no metric 'accuracy'"),
        ({"stop": {"rounds": 2, "metric": "loss"}}, "target is not set"),
        ({"compare": {"metric": "los"}}, "did you mean 'loss'"),
    ],
)
def test_a_metric_that_a_task_has_not_is_refused_before_the_run(config, problem, tmp_path):
    with pytest.raises(ConfigError, match=problem):
        fedpace.simulate(CONFIG | config, task=regression(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_share_as_a_percentage_is_refused_before_the_run(tmp_path):
    labels = (Y[:, 0] > 0).long()
    task = fedpace.Task(lambda: nn.Linear(5, 2), (X[:300], labels[:300]), (X[300:], labels[300:]))
    for config in ({"stop": {"rounds": 2, "target": 80}}, {"compare": {"targets": [70.0]}}):
        with pytest.raises(ConfigError, match=r"accuracy is a share, so set it in \(0, 1\]"):
            fedpace.simulate(CONFIG | config, task=task, out=tmp_path / "run")
