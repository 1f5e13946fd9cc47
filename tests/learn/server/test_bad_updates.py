"""Updates that the model store refuses, and training that diverges."""

import math
from dataclasses import replace

import pytest
import torch

from fedpace.core.commands import Aggregate
from fedpace.core.errors import Diverged, PeerError, PolicyError
from fedpace.learn.server.store import ModelStore
from fedpace.learn.settings import ServerSettings
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import normed, task
from tests.learn.server.test_model_store import changed, make, update
from tests.messages import make_job


@pytest.fixture(scope="module")
def trainer():
    return Trainer(task(normed), TrainSettings(), 3)


def test_bad_updates_are_refused_with_a_reason(trainer):
    store, good = make(trainer), update(trainer, 1, 2)
    poisoned = good.params.clone()
    poisoned[3] = math.nan
    for bad, reason in [
        (changed(good, params=poisoned), "not finite"),
        (changed(good, effort=0.0), "effort 0.0; expected a number above 0"),
        (changed(good, effort=math.nan), "effort nan"),
        (changed(good, buffers=good.buffers + math.inf), "not finite"),
        (changed(good, params=good.params[1:]), r"shape \(32,\)"),
        (changed(good, params=good.params[None]), r"shape \(1, 33\)"),
        (changed(good, params=good.params.double()), "float64"),
        (changed(good, counters=good.counters.float()), "float32"),
        (changed(good, depth=3), "shape"),
        (changed(good, gradient=good.params), r"gradient of shape \(33,\)"),
        (changed(good, gradient=torch.zeros(trainer.layout.start(0).params).double()), "float64"),
        (changed(good, depth=0), "depth 0; expected 1 to 5"),
        (changed(good, depth=6), "depth 6; expected 1 to 5"),
    ]:
        with pytest.raises(PeerError, match=reason):
            store.put(1, bad)
        assert not store.has(1)
    store.put(1, good)
    with pytest.raises(PeerError, match="already"):
        store.put(1, good)


def test_training_that_diverges_is_refused_by_the_store():
    hopeless = replace(task(), loss=lambda outputs, targets: outputs.sum() * math.inf)
    wild = Trainer(hopeless, TrainSettings(), 3)
    bad = wild.run(make_job(0, 1, 8, 0, 4, 5), wild.initial())
    store = ModelStore(wild.layout, wild.initial(), ServerSettings(), lambda weights: {"loss": 0.0})
    with pytest.raises(PeerError, match="diverged"):
        store.put(1, bad)


def test_what_was_trained_here_and_is_not_finite_diverges_when_it_is_used(trainer):
    store = make(trainer)
    good = update(trainer, 1, 5)
    store.put(1, good, trained_here=True)
    store.put(2, changed(good, params=good.params / 0), trained_here=True)
    store.check_converge((1,))
    with pytest.raises(Diverged, match=r"task 2 has params that are not finite.*smaller learning rate"):
        store.check_converge((1, 2))
    store.discard(2)
    store.check_converge((1, 2))


@pytest.mark.parametrize("kind", ["params", "buffers"])
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_an_aggregation_names_the_update_that_is_not_finite(trainer, kind, bad, weight):
    store, before = make(trainer), trainer.initial()
    good = update(trainer, 1, 5)
    vector = getattr(good, kind).clone()
    vector[3] = bad
    store.put(1, good, trained_here=True)
    store.put(2, changed(good, **{kind: vector}), trained_here=True)
    store.put(3, changed(good, params=-good.params), trained_here=True)
    with pytest.raises(Diverged, match=rf"task 2 has {kind} that are not finite"):
        store.aggregate(Aggregate((1, 2, 3), (2.0, weight, 1.0)))
    assert store.weights() is before
    store.discard(2)
    store.aggregate(Aggregate((1, 3), (2.0, 1.0)))
    assert store.weights() is not before


def test_updates_whose_numbers_are_large_are_used(trainer):
    store, good = make(trainer), update(trainer, 1, 5)
    huge = torch.full_like(good.params, 3e38)
    huge[::2] *= -1
    store.put(1, changed(good, params=huge), trained_here=True)
    store.put(2, changed(good, params=-huge), trained_here=True)
    store.check_converge((1, 2))
    store.aggregate(Aggregate((1, 2), (1.0, 1.0)))
    assert torch.equal(store.weights().params, trainer.initial().params)


def test_a_step_to_numbers_that_are_not_finite_diverges_and_the_last_good_weights_stay(trainer):
    store = make(trainer)
    good, before = update(trainer, 1, 5), store.weights()
    huge = torch.full_like(good.params, 3e38)
    for task_id in (1, 2):
        store.put(task_id, changed(good, params=huge))
    with pytest.raises(Diverged, match="smaller learning rates"):
        store.aggregate(Aggregate((1, 2), (1.0, 1.0), rule="sum"))
    assert store.weights() is before


def test_updates_that_are_not_there_cannot_be_used(trainer):
    store = make(trainer)
    store.put(1, update(trainer, 1, 2))
    for tasks in ((2,), (1, 1)):
        with pytest.raises(PolicyError, match="each arrived and unused update once"):
            store.aggregate(Aggregate(tasks, (1.0,) * len(tasks)))
    assert store.has(1)
    store.discard(1)
    store.discard(9)
    assert not store.has(1)
