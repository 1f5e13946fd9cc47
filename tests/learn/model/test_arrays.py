"""Weights and updates survive the way as plain arrays, and what is none of them is refused."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from fedpace.core.errors import PeerError
from fedpace.learn.model.arrays import (
    arrays_to_update,
    arrays_to_weights,
    layout_digest,
    update_to_arrays,
    weights_to_arrays,
)
from fedpace.learn.model.layers import Layout
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import Swapped, normed, plain, task
from tests.messages import make_job

TRAINER = Trainer(task(normed), TrainSettings(), 7)


def update(**job):
    return TRAINER.run(make_job(0, 1, 3, 0, **{"depth": 5, "batch_size": 5, **job}), TRAINER.initial())


def travelled(arrays):
    """As they come off the wire: cannot be written to, and begin anywhere."""
    found = {}
    for name, array in arrays.items():
        raw = b"?" + array.tobytes()
        found[name] = np.frombuffer(raw, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        assert array.dtype.str in ("<f4", "<f8", "<i8")
    return found


@pytest.mark.parametrize("make", [plain, normed])
def test_weights_survive(make):
    trainer = Trainer(task(make), TrainSettings(), 7)
    weights = trainer.initial()
    found = arrays_to_weights(travelled(weights_to_arrays(weights)), trainer.layout)
    for kind in ("params", "buffers", "counters"):
        assert torch.equal(getattr(found, kind), getattr(weights, kind))
        assert getattr(found, kind).dtype == getattr(weights, kind).dtype
    found.params.add_(1)  # memory of its own


@pytest.mark.parametrize(
    "job",
    [
        {},
        {"depth": 2},
        {"width": 0.5},
        {"depth": 2, "estimate": "numbers"},
        {"width": 0.5, "estimate": "gradient"},
    ],
    ids=str,
)
def test_updates_survive(job):
    sent = update(**job)
    found = arrays_to_update(travelled(update_to_arrays(sent)))
    assert (found.depth, found.effort, found.width) == (sent.depth, sent.effort, sent.width)
    assert found.estimates == sent.estimates
    for kind in ("params", "buffers", "counters", "gradient"):
        one, other = getattr(found, kind), getattr(sent, kind)
        assert (one is None) == (other is None)
        assert one is None or (torch.equal(one, other) and one.dtype == other.dtype)


def test_unknown_estimates_stay_unknown():
    sent = update(batch_size=1, estimate="numbers")
    assert math.isnan(sent.estimates.noise)
    found = arrays_to_update(travelled(update_to_arrays(sent)))
    assert math.isnan(found.estimates.noise)
    assert found.estimates.loss == sent.estimates.loss


WRONG = [
    ({"params": None}, "missing: .'params'."),
    ({"more": np.zeros(1)}, "unknown: .'more'."),
    ({"params": np.zeros(3, np.float64)}, "type <f8"),
    ({"params": np.zeros(3, ">f4")}, "type >f4"),
    ({"buffers": np.zeros(3, object)}, "type .O"),
    ({"counters": np.zeros(2, np.int32)}, "type <i4"),
    ({"params": np.zeros((3, 1), np.float32)}, r"shape \(3, 1\)"),
    ({"params": np.zeros((), np.float32)}, r"shape \(\)"),
]


def changed(arrays, change):
    return {name: array for name, array in {**arrays, **change}.items() if array is not None}


@pytest.mark.parametrize(
    ("change", "message"),
    [*WRONG, ({"counters": np.zeros(3, np.int64)}, r"expected <i8 and \(2,\)")],
    ids=str,
)
def test_arrays_that_are_no_weights_are_refused(change, message):
    arrays = changed(weights_to_arrays(TRAINER.initial()), change)
    with pytest.raises(PeerError, match=message):
        arrays_to_weights(arrays, TRAINER.layout)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *WRONG,
        ({"depth": None, "effort": None}, "missing: .'depth', 'effort'."),
        ({"depth": np.zeros(1)}, "depth of an update has type <f8"),
        ({"depth": np.zeros(0, np.int64)}, r"expected <i8 and \(1,\)"),
        ({"effort": np.zeros(2)}, r"effort of an update has type <f8 and shape \(2,\)"),
        ({"width": np.zeros(1, np.float32)}, "width of an update has type <f4"),
        ({"estimates": np.zeros(5)}, r"expected <f8 and \(6,\)"),
        ({"gradient": np.zeros(3)}, "gradient of an update has type <f8"),
    ],
    ids=str,
)
def test_arrays_that_are_no_update_are_refused(change, message):
    arrays = changed(update_to_arrays(update(estimate="gradient")), change)
    with pytest.raises(PeerError, match=message):
        arrays_to_update(arrays)


def digest(model):
    return layout_digest(Layout.trace(model, torch.zeros(2, 4)), model)


def test_a_digest_tells_models_apart_and_is_the_same_for_equal_ones():
    def frozen():
        model = plain()
        model[0].bias.requires_grad_(False)
        return model

    def turned():  # as many numbers in each layer, of another shape
        return nn.Sequential(nn.Linear(4, 3, bias=False), nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 1, 3))

    def straight():
        return nn.Sequential(nn.Linear(4, 3, bias=False), nn.Unflatten(1, (3, 1)), nn.Conv1d(3, 1, 1))

    makers = [plain, normed, Swapped, frozen, turned, straight]
    found = [digest(make()) for make in makers]
    assert found == [digest(make()) for make in makers]
    assert len(set(found)) == len(makers)
    assert all(len(one) == 64 for one in found)
