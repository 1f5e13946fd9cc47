"""Runs that test the model on every client's own samples."""

import numpy as np
import pytest
import torch
from torch import nn

import fedpace
from fedpace import metrics
from fedpace.core.errors import ConfigError
from fedpace.core.facts import ClientsEvaluated, Evaluated
from fedpace.learn.server.client_tests import ClientEvaluator
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.train.trainer import Trainer, TrainSettings
from fedpace.report.table import markdown
from fedpace.runs.assembly import Assembly, RunRequest
from fedpace.runs.config import load_plan
from fedpace.runs.folder import RunFolder

DRAW = torch.Generator().manual_seed(6)
X = torch.randn(260, 4, generator=DRAW)
LABELS = X[:, :3].argmax(1)
CLIENTS = [np.arange(0, 50), np.arange(50, 90), np.arange(90, 200)]
CONFIG = {
    "policy": "sync",
    "fleet": {"kind": "explicit", "compute_s": [0.1, 0.3, 0.2], "down_mbps": [8.0], "up_mbps": [8.0]},
    "train": {"lr": 0.1},
    "stop": {"rounds": 5},
    "evaluate": {"clients": True, "clients_every": 2},
}


def model():
    return nn.Linear(4, 3)


def task(**options):
    return fedpace.Task(model, (X[:200], LABELS[:200]), (X[200:], LABELS[200:]), CLIENTS, **options)


def of_clients(result):
    return [fact for fact in result.journal if isinstance(fact, ClientsEvaluated)]


def test_journal_summary_and_table_have_what_clients_get():
    result = fedpace.simulate(CONFIG, task=task())
    facts = of_clients(result)
    assert [fact.version for fact in facts] == [1, 3, 5]  # every other test, and the last model
    last, found = facts[-1], result.summary.fairness
    assert found.mean == last.mean == pytest.approx(np.mean(last.values))
    assert found.worst_decile == min(last.values)
    assert found.spread == pytest.approx(np.std(last.values))
    fast, slow, middle = last.values
    assert found.groups == {"slow": slow, "middle": middle, "fast": fast}
    assert result.journal.header.context.clients == 3
    joined = [message.samples for message in result.journal if hasattr(message, "samples")][:3]
    assert joined == [40, 32, 88]
    table = markdown({"sync": [result.summary]}, ())
    assert "clients' mean (%) | worst decile (%) | spread (%) | slow third (%)" in table
    assert result.summary.to_dict()["fairness"]["groups"] == found.groups


@pytest.mark.parametrize("batch_size", [7, 500])
@pytest.mark.parametrize("chosen", ["accuracy", "loss", "f1", "perplexity"])
def test_one_pass_gives_what_testing_each_client_alone_gives(chosen, batch_size):
    tests = [np.arange(0, 30), np.arange(30, 35), np.arange(35, 60)]
    own = task(client_tests=tests, metrics=chosen)
    trainer = Trainer(own, TrainSettings(), 1)
    weights = trainer.initial()
    found = ClientEvaluator(own, trainer.layout, trainer.new_model(), batch_size)(weights)
    for value, share in zip(found, tests, strict=True):
        alone = fedpace.Task(model, (X, LABELS), (X[200:][share], LABELS[200:][share]), metrics=chosen)
        wanted = Evaluator(alone, trainer.layout, trainer.new_model())(weights)[chosen]
        assert value == pytest.approx(wanted)


def test_a_run_that_is_resumed_recalls_tests_of_clients(tmp_path):
    whole = fedpace.simulate(CONFIG, task=task(), out=tmp_path / "whole")

    class Enough(Exception):
        pass

    def stop(standing):
        if standing.round == 4:
            raise Enough

    options = {"task": task(), "out": tmp_path / "cut", "snapshot_every_s": 0.0}
    with pytest.raises(Enough):
        fedpace.simulate(CONFIG, **options, watches=(stop,))
    assert list(fedpace.simulate(CONFIG, **options, resume=True).journal) == list(whole.journal)


def test_a_client_without_a_value_is_left_out_and_one_must_have_one():
    even = [np.arange(0, 60), np.flatnonzero(LABELS[200:] == 1)[:5], np.arange(10)]
    own = task(client_tests=even, metrics=metrics.auc())
    last = of_clients(fedpace.simulate(CONFIG, task=own))[-1]
    assert [value is None for value in last.values] == [False, True, False]
    one = [np.flatnonzero(LABELS[200:] == label)[:5] for label in range(3)]
    with pytest.raises(ConfigError, match="no client has a value of 'auc'"):
        fedpace.simulate(CONFIG, task=task(client_tests=one, metrics="auc"))


def test_nothing_is_held_out_unless_it_is_asked_for():
    result = fedpace.simulate({**CONFIG, "evaluate": {}}, task=task())
    assert of_clients(result) == []
    assert result.summary.fairness is None
    assert any(isinstance(fact, Evaluated) for fact in result.journal)


@pytest.mark.parametrize(
    ("tests", "problem"),
    [
        ([[0], [1]], "client_tests has 2 clients, but 3 train"),
        ([[0], [1], [60]], "client_tests of client 2"),
        ([[0], [], [1]], "client_tests of client 1"),
    ],
)
def test_wrong_tests_of_clients_are_one_line(tests, problem):
    with pytest.raises(ConfigError, match=problem):
        fedpace.simulate(CONFIG, task=task(client_tests=[np.array(one, int) for one in tests]))


def test_a_server_says_that_it_has_no_samples_of_its_clients(tmp_path):
    config = {"clients": 3, "policy": "sync", "evaluate": {"clients": True}}
    request = RunRequest(*load_plan(config, None), RunFolder(tmp_path), task())
    with pytest.raises(ConfigError, match="a server has no samples of its clients"):
        Assembly.served(request)
