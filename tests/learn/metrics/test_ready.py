"""Ready-made metrics against numbers by hand and by brute force."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

from fedpace import metrics
from fedpace.core.errors import ConfigError
from fedpace.learn.metrics.loss import LossTotal, ignored_target, loss_weight
from fedpace.learn.model.weights import Weights
from tests.learn.metrics.test_metric import ONE, scores

DRAW = torch.Generator().manual_seed(11)
X, Y = torch.randn(40, generator=DRAW), torch.randn(40, generator=DRAW)
LOGITS = torch.randn(40, 3, generator=DRAW).mul(2).round()  # with ties
LABELS = torch.randint(0, 3, (40,), generator=DRAW)


def test_errors_of_regression():
    found = scores(X, Y, loss=mse_loss, metrics=("mse", "rmse", "mae", "r2"))
    error = (X - Y).double()
    assert found["mse"] == pytest.approx(error.square().mean().item())
    assert found["rmse"] == pytest.approx(error.square().mean().sqrt().item())
    assert found["mae"] == pytest.approx(error.abs().mean().item())
    spread = (Y.double() - Y.double().mean()).square().sum()
    assert found["r2"] == pytest.approx(1 - (error.square().sum() / spread).item())
    assert found["loss"] == pytest.approx(found["mse"], rel=1e-6)


def test_r2_of_several_columns_is_their_mean_and_of_equal_targets_one_or_zero():
    wanted = torch.stack([Y, torch.ones(40), torch.ones(40)], 1)
    given = torch.stack([Y, torch.ones(40), torch.zeros(40)], 1)
    assert scores(given, wanted, loss=mse_loss, metrics="r2")["r2"] == pytest.approx((1 + 1 + 0) / 3)


def brute_auc(values, positive):
    pairs = [(a, b) for a in values[positive].tolist() for b in values[~positive].tolist()]
    return sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs)


def test_auc_is_how_often_a_positive_sample_is_above_a_negative_one():
    positive = LABELS == 1
    wanted = brute_auc(LOGITS[:, 0], positive)
    bce = binary_cross_entropy_with_logits
    found = scores(LOGITS[:, 0], positive.float(), loss=bce, metrics="auc")
    assert found["auc"] == pytest.approx(wanted)
    two = torch.stack([torch.zeros(40), LOGITS[:, 0]], 1)
    assert scores(two, positive.long(), metrics="auc")["auc"] == pytest.approx(wanted)
    shares = LOGITS.double().softmax(1)
    each = [brute_auc(shares[:, one], LABELS.eq(one)) for one in range(3)]
    assert scores(LOGITS, LABELS, metrics="auc")["auc"] == pytest.approx(sum(each) / 3)
    with pytest.raises(ConfigError, match="auc needs test targets of two classes"):
        scores(LOGITS, LABELS * 0, metrics="auc")
    lost = Weights(torch.full((1,), math.nan), ONE.buffers, ONE.counters)
    assert math.isnan(scores(LOGITS, LABELS, metrics="auc", weights=lost)["auc"])


def brute_f1(given, true, one):
    right = ((given == one) & (true == one)).sum().item()
    return 2 * right / max(((given == one).sum() + (true == one).sum()).item(), 1)


def test_f1_by_its_averages():
    given = LOGITS.argmax(1)
    each = [brute_f1(given, LABELS, one) for one in range(3)]
    shares = [LABELS.eq(one).double().mean().item() for one in range(3)]
    hits = (given == LABELS).double().mean().item()
    wanted = {
        "macro": sum(each) / 3,
        "weighted": sum(f * share for f, share in zip(each, shares, strict=True)),
        "micro": hits,
    }
    for average, value in wanted.items():
        found = scores(LOGITS, LABELS, metrics=metrics.f1(average))
        assert found["f1"] == pytest.approx(value), average
    positive = LABELS == 1
    binary = scores(LOGITS[:, 1], positive.float(), loss=mse_loss, metrics=metrics.f1("binary"))
    assert binary["f1"] == pytest.approx(brute_f1(LOGITS[:, 1] > 0, positive, True))
    with pytest.raises(ConfigError, match="did you mean 'macro'"):
        metrics.f1("makro")


def test_binary_accuracy_is_by_the_side_of_one_logit():
    wanted = ((LOGITS[:, 0] > 0) == (LABELS == 1)).double().mean().item()
    targets = (LABELS == 1).float()
    found = scores(LOGITS[:, 0], targets, loss=mse_loss, metrics="binary_accuracy")
    assert found["binary_accuracy"] == pytest.approx(wanted)


def test_a_perplexity_too_large_for_a_number_is_infinite():
    sure = torch.tensor([[1e6, 0.0], [1e6, 0.0]])
    assert scores(sure, torch.ones(2).long(), metrics="perplexity")["perplexity"] == math.inf


@pytest.mark.parametrize(
    "loss",
    [
        cross_entropy,
        nn.CrossEntropyLoss(),
        partial(cross_entropy, ignore_index=-100),
        metrics.TokenLoss(),
    ],
)
def test_the_loss_of_a_test_set_does_not_depend_on_its_batches(loss):
    targets = LABELS.masked_fill(torch.arange(40) % 7 < 3, -100)
    there = targets >= 0
    wanted = cross_entropy(LOGITS[there], targets[there]).item()
    for batch_size in (1, 3, 500):
        assert scores(LOGITS, targets, batch_size, loss=loss)["loss"] == pytest.approx(wanted)


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=torch.tensor([1.0, 50.0, 3.0])),
        partial(cross_entropy, weight=torch.tensor([1.0, 50.0, 3.0]), label_smoothing=0.1),
    ],
)
def test_the_loss_by_weights_of_classes_does_not_depend_on_its_batches(loss):
    targets = LABELS.masked_fill(torch.arange(40) % 7 < 3, -100)
    for batch_size in (1, 3, 500):
        found = scores(LOGITS, targets, batch_size, loss=loss)["loss"]
        assert found == pytest.approx(loss(LOGITS, targets).item())


@pytest.mark.parametrize(
    "loss",
    [
        nn.CrossEntropyLoss(weight=torch.arange(1.0, 201.0)),
        nn.CrossEntropyLoss(weight=torch.arange(1.0, 201.0), ignore_index=7),
        nn.CrossEntropyLoss(),
        metrics.TokenLoss(),
    ],
)
def test_classes_in_bytes_count_as_they_do_as_integers(loss):
    """torch takes bytes for a mask of what they index, and -100 for 156 beside them."""
    outputs = torch.randn(6, 200, generator=torch.Generator().manual_seed(5))
    targets = torch.tensor([156, 7, 7, 0, 199, 3])
    total = LossTotal(loss)
    for some in (slice(0, 1), slice(1, 4), slice(4, 6)):
        total.update(outputs[some], targets[some].to(torch.uint8), 0)
    assert total.value() == pytest.approx(loss(outputs, targets).item())


@pytest.mark.parametrize("weight", [None, torch.ones(3, device="meta")])
def test_what_a_batch_of_a_loss_counts_is_known_to_a_gpu_without_being_waited_for(weight):
    """On torch's device without values whatever has to read one is an error."""
    outputs, targets = LOGITS.to("meta"), LABELS.to("meta")
    found = loss_weight(partial(cross_entropy, weight=weight))(outputs, targets, 40)
    assert (found.device.type, found.shape) == ("meta", ())


@pytest.mark.parametrize(
    "loss", [partial(cross_entropy, reduction="sum"), nn.CrossEntropyLoss(reduction="sum")]
)
def test_a_sum_counts_by_samples_whatever_it_leaves_out(loss):
    assert loss_weight(loss)(LOGITS, LABELS.where(LABELS > 0, -100), 40) == 40
    assert ignored_target(loss) is None


def test_a_loss_may_say_how_much_a_batch_of_it_counts():
    class Weighted:
        def __call__(self, outputs, targets):
            return (outputs * targets).sum() / targets.sum()

        def weight(self, outputs, targets):
            return targets.sum()

    weights = Y.abs()
    wanted = ((X * weights).sum() / weights.sum()).item()
    for batch_size in (1, 3, 500):
        found = scores(X, weights, batch_size, loss=Weighted())
        assert found["loss"] == pytest.approx(wanted, rel=1e-4)
