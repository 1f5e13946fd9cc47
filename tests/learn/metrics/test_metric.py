"""What a metric may be, and how it adds up over batches."""

import math
import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss

from fedpace import metrics
from fedpace.core.errors import ConfigError
from fedpace.learn.metrics.choice import BY_NAME
from fedpace.learn.metrics.metric import Metric
from fedpace.learn.model.weights import Weights
from fedpace.learn.server.evaluate import Evaluator
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer, TrainSettings


class Same(nn.Module):
    """Gives back its inputs; the one weight is there to be trained."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(1, 1, bias=False)

    def forward(self, x):
        return x + 0 * self.scale.weight.sum()


ONE = Weights(torch.ones(1), torch.empty(0), torch.empty(0, dtype=torch.int64))


def scores(inputs, targets, batch_size=3, weights=ONE, **options):
    """Metrics of outputs that are the inputs."""
    own = Task(Same, (inputs, targets), (inputs, targets), **options)
    layout = Trainer(own, TrainSettings(), 1).layout
    return Evaluator(own, layout, own.model(), batch_size)(weights)


REAL = torch.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
DRAW = torch.Generator().manual_seed(3)
TOKENS = torch.randn(7, 5, 4, generator=DRAW)
LABELS = torch.randint(0, 4, (7, 5), generator=DRAW)
PADDED = LABELS.masked_fill(torch.arange(5) >= torch.tensor([5, 1, 2, 4, 3, 1, 5])[:, None], -100)


@pytest.mark.parametrize("batch_size", [1, 3, 500])
def test_a_real_valued_score_is_not_cut_to_integers(batch_size):
    found = scores(REAL, REAL, batch_size, loss=mse_loss, accuracy=lambda out, truth: out / 10)
    assert found["accuracy"] == pytest.approx(0.3)


@pytest.mark.parametrize("batch_size", [1, 3, 500])
def test_a_score_may_be_one_number_a_sequence(batch_size):
    right = TOKENS.argmax(-1) == LABELS
    each = Metric("each", lambda out, truth: (out.argmax(-1) == truth).double().mean(1))
    found = scores(TOKENS, LABELS, batch_size, loss=metrics.TokenLoss(), metrics=each)
    assert found["each"] == pytest.approx(right.double().mean().item())


def test_the_loss_is_the_main_metric_where_targets_are_no_classes_and_nothing_is_given():
    assert list(scores(REAL, REAL, loss=mse_loss, accuracy=None)) == ["loss"]
    assert list(scores(TOKENS[:, 0], LABELS[:, 0])) == ["accuracy", "loss"]


@pytest.mark.parametrize("batch_size", [1, 2, 500])
def test_padding_counts_neither_for_accuracy_nor_loss_nor_perplexity(batch_size):
    there = PADDED != -100
    wanted = cross_entropy(TOKENS[there], PADDED[there]).item()
    for inputs, loss in ((TOKENS, metrics.TokenLoss()), (TOKENS.movedim(-1, 1), cross_entropy)):
        chosen = ("accuracy", metrics.token_accuracy(), "perplexity")
        found = scores(inputs, PADDED, batch_size, loss=loss, metrics=chosen)
        hits = (TOKENS.argmax(-1) == PADDED)[there].double().mean().item()
        assert found["accuracy"] == found["token_accuracy"] == pytest.approx(hits)
        assert found["loss"] == pytest.approx(wanted)
        assert found["perplexity"] == pytest.approx(math.exp(wanted))


def test_a_mask_says_what_counts():
    first = Metric(
        "first",
        lambda out, truth: (out.argmax(-1) == truth).double(),
        over="tokens",
        mask=lambda out, truth: torch.arange(5).expand_as(truth) < 1,
    )
    found = scores(TOKENS, LABELS, loss=metrics.TokenLoss(), metrics=first)
    assert found["first"] == pytest.approx((TOKENS.argmax(-1) == LABELS)[:, 0].double().mean().item())


def test_a_metric_over_all_sees_the_whole_test_set_at_once():
    median = Metric("median", lambda out, truth: (out + truth).median(), False, "all")
    assert scores(REAL, REAL, loss=mse_loss, metrics=median)["median"] == 6.0


class Streaming:
    """As those of torchmetrics: the largest error so far."""

    higher_is_better = False

    def __init__(self):
        self.reset()

    def reset(self):
        self.most = torch.tensor(0.0)

    def update(self, preds, target):
        self.most = torch.maximum(self.most, (preds - target).abs().max())

    def compute(self):
        return self.most


def test_an_object_with_update_compute_and_reset_is_a_metric_as_it_is():
    own = Streaming()
    own.update(torch.tensor(99.0), torch.tensor(0.0))
    task = Task(Same, (REAL, REAL), (REAL, REAL), loss=mse_loss, metrics=own)
    assert [(one.name, one.higher_is_better) for one in task.metric_set.infos] == [
        ("Streaming", False),
        ("loss", False),
    ]
    for _ in range(2):
        assert scores(REAL, REAL + 2, loss=mse_loss, metrics={"worst": own})["worst"] == 2.0


def test_metrics_of_torchmetrics_are_taken_as_they_are():
    theirs = pytest.importorskip("torchmetrics")
    classes = {"task": "multiclass", "num_classes": 4}
    chosen = {
        "f1": theirs.F1Score(**classes, average="macro"),
        "auc": theirs.AUROC(**classes),
        "acc": theirs.Accuracy(**classes, average="micro"),
    }
    rows, labels = TOKENS.flatten(0, 1), LABELS.flatten()
    found = scores(rows, labels, metrics=chosen)
    ours = scores(rows, labels, metrics=("f1", "auc", "accuracy"))
    assert list(found) == ["f1", "auc", "acc", "loss"]
    assert [*found.values()] == pytest.approx([*ours.values()])


def test_a_collection_of_torchmetrics_is_several_metrics():
    theirs = pytest.importorskip("torchmetrics")
    chosen = theirs.MetricCollection([theirs.MeanSquaredError(), theirs.MeanAbsoluteError()])
    found = scores(REAL, REAL + 2, loss=mse_loss, metrics=chosen)
    assert found == pytest.approx({"MeanSquaredError": 4, "MeanAbsoluteError": 2, "loss": 4})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"metrics": "acuracy"}, "there is no metric 'acuracy' (did you mean 'accuracy'?)"),
        ({"metrics": 3}, "a metric is 3; give a name, a fedpace.Metric"),
        ({"metrics": len}, "has no name or direction; give fedpace.Metric"),
        ({"metrics": {"size": len}}, "give fedpace.Metric('size', it, higher_is_better=...)"),
        ({"metrics": Streaming}, "a metric is the class Streaming; give an instance"),
        ({"metrics": ("mse", "mse")}, "two metrics are named 'mse'"),
        ({"accuracy": 0.5}, "accuracy is 0.5; give a function"),
    ],
)
def test_a_wrong_metric_is_one_line_when_the_task_is_made(given, problem):
    with pytest.raises(ConfigError) as error:
        Task(Same, (REAL, REAL), (REAL, REAL), loss=mse_loss, **given)
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "loss"}, "which every task has"),
        ({"name": ""}, "give a word or a few"),
        ({"score": 1}, "the score of metric 'x' is 1"),
        ({"score": Streaming}, "is the class Streaming"),
        ({"over": "token"}, "(did you mean 'tokens'?)"),
        ({"ignore": 0}, "set over='tokens'"),
        ({"over": "tokens", "ignore": "pad"}, "give an integer"),
        ({"transform": 2}, "transform of metric 'x' is 2"),
        ({"higher_is_better": "no"}, "set True or False"),
        ({"score": Streaming(), "over": "tokens"}, "adds up by itself"),
    ],
)
def test_a_wrong_part_of_a_metric_is_one_line(given, problem):
    with pytest.raises(ConfigError) as error:
        Metric(**({"name": "x", "score": len} | given))
    assert problem in str(error.value)


def test_a_streaming_metric_without_a_direction_has_to_be_told_one():
    class Shy(Streaming):
        higher_is_better = None

    with pytest.raises(ConfigError, match="does not say if higher is better"):
        Metric("shy", Shy())
    assert not Metric("shy", Shy(), higher_is_better=False).info.higher_is_better


@pytest.mark.parametrize(
    ("score", "over", "problem"),
    [
        (lambda out, truth: out.mean(), "samples", r"gives \(\) for 3 samples"),
        (lambda out, truth: out @ truth[:2], "samples", "failed on outputs"),
        (lambda out, truth: 0.5, "samples", "gives float"),
        (lambda out, truth: out[:2], "tokens", "give one number a token"),
        (lambda out, truth: out, "all", "one number is expected"),
        (lambda out, truth: {"a": 1}, "all", "one number is expected"),
    ],
)
def test_a_score_that_does_not_fit_is_one_line(score, over, problem):
    with pytest.raises(ConfigError, match=problem):
        scores(REAL, REAL, loss=mse_loss, metrics=Metric("x", score, over=over))


def test_classes_without_scores_of_classes_are_told_what_to_give():
    with pytest.raises(ConfigError, match="give the task its own accuracy or metrics"):
        scores(REAL[:, None], REAL.long(), loss=lambda out, truth: out.mean())
    with pytest.raises(ConfigError, match="auc needs targets that are classes, but some lie between"):
        scores(REAL, REAL, loss=mse_loss, metrics="auc")
    with pytest.raises(ConfigError, match="let the model give outputs of the targets' shape"):
        scores(REAL[:, None], REAL, loss=lambda out, truth: out.mean(), metrics="r2")
    with pytest.raises(ConfigError, match="every test target is padding"):
        scores(TOKENS, PADDED * 0, loss=metrics.TokenLoss(), metrics=metrics.perplexity(ignore=0))


def test_a_loss_that_is_no_mean_is_told_so():
    with pytest.raises(
        ConfigError, match=r"loss gives float32 \(2,\); it must give a tensor of one number"
    ):
        scores(REAL, REAL, loss=lambda out, truth: (out - truth).abs())


def test_ready_made_metrics_survive_the_way_to_another_process():
    for make in BY_NAME.values():
        assert pickle.loads(pickle.dumps(make())).name == make().name
