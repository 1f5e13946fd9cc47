"""The exponential mean of the global model."""

import math

import pytest
import torch

import fedpace
from fedpace.core.commands import GLOBAL, Aggregate
from fedpace.core.errors import ConfigError, Diverged
from fedpace.core.facts import Evaluated
from fedpace.learn.model.weights import Weights
from fedpace.learn.server.history.average import ModelAverage
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import normed, task
from tests.learn.server.test_model_store import make, update
from tests.learn.server.test_slot import aggregated, slot


@pytest.fixture(scope="module")
def trainer():
    return Trainer(task(normed), TrainSettings(), 3)


def version(number, buffer=0.0):
    return Weights(torch.tensor([number]), torch.tensor([buffer]), torch.tensor([int(number)]))


def oracle(numbers, decay):
    """Weights of versions, each newer one's in turn; all alike while they are few."""
    mean = None
    for count, number in enumerate(numbers, 1):
        share = max(1 - decay, 1 / count)
        mean = number if mean is None else (1 - share) * mean + share * number
    return mean


@pytest.mark.parametrize(("decay", "expected"), [(0.5, [4, 6, 11]), (0.75, [4, 6, 28 / 3])])
def test_a_worked_example(decay, expected):
    mean = ModelAverage(decay)
    for number, found in zip((4.0, 8.0, 16.0), expected, strict=True):
        mean.add(version(number))
        assert mean.weights.params.item() == pytest.approx(found)
        assert mean.weights.counters.item() == number


@pytest.mark.parametrize("decay", [0.1, 0.9, 0.99])
def test_many_versions_count_as_the_formula_says(decay):
    mean, numbers = ModelAverage(decay), [math.sin(at) for at in range(50)]
    for number in numbers:
        mean.add(version(number, -math.inf))
    assert mean.weights.params.item() == pytest.approx(oracle(numbers, decay), rel=1e-5)
    assert mean.weights.buffers.item() == -math.inf  # as in masks


def test_what_was_handed_out_stays():
    mean = ModelAverage(0.5)
    mean.add(version(1.0))
    first = mean.weights
    mean.add(version(3.0))
    assert first.params.item() == 1.0


def test_it_goes_on_where_its_state_was():
    one, other = ModelAverage(0.9), ModelAverage(0.9)
    for number in (1.0, 5.0):
        one.add(version(number))
    other.load(one.state())
    for mean in (one, other):
        mean.add(version(30.0))
    assert one.weights.params.item() == other.weights.params.item() == pytest.approx(12.0)
    other.load({})
    assert other.weights is None


def test_a_slot_serves_the_mean_and_steps_from_its_weights():
    one = slot(average=0.5)
    assert one.served is one.weights
    for number in (1.0, 2.0, 3.0):
        one.step(aggregated(5), None)
        one.settle()
        assert set(one.weights.params.tolist()) == {number}
    assert one.served.params[0].item() == pytest.approx(2.25)
    other = slot(average=0.5)
    other.load(one.state())
    assert torch.equal(other.served.params, one.served.params)
    plain = slot()
    plain.load(one.state())
    assert plain.served is plain.weights


def test_a_store_tests_the_mean_and_leaves_out_a_step_that_is_not_taken(trainer):
    store = make(trainer, average=0.5)
    for number in (1, 2):
        store.put(number, update(trainer, number, 5, store.weights()))
        store.aggregate(Aggregate((number,), (1.0,)))
    before = store.served(GLOBAL)
    assert not torch.equal(before.params, store.weights().params)
    store.put(3, update(trainer, 3, 5, store.weights()))
    with pytest.raises(Diverged):
        store.aggregate(Aggregate((3,), (1.0,), lr=math.inf))
    assert store.served(GLOBAL) is before
    seen = []
    store._test = lambda weights: seen.append(weights) or {"accuracy": 0.5, "loss": 2.0}
    store.evaluate()
    assert seen == [before]


@pytest.mark.parametrize("policy", ["sync", "fedbuff", "fedcompass"])
def test_a_run_decides_and_trains_the_same_and_ends_with_the_mean(small, tmp_path, policy):
    small |= {"policy": policy, "stop": {"rounds": 6}, "evaluate": {"every_rounds": 2}}
    plain = fedpace.simulate(small, out=tmp_path / "plain")
    mean = fedpace.simulate(small | {"server": {"average": 0.8}}, out=tmp_path / "mean")
    told = [[one for one in run.journal if not isinstance(one, Evaluated)] for run in (plain, mean)]
    assert told[0] == told[1]
    scores = [[one.loss for one in run.journal if isinstance(one, Evaluated)] for run in (plain, mean)]
    assert scores[0][0] == scores[1][0]  # nothing was aggregated yet
    assert all(one != other for one, other in zip(scores[0][2:], scores[1][2:], strict=True))


def test_a_decay_of_one_is_refused(small, tmp_path):
    with pytest.raises(ConfigError, match=r"average is 1\.0"):
        fedpace.simulate(small | {"server": {"average": 1.0}}, out=tmp_path / "out")
