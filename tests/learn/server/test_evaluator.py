"""Accuracy and loss on the test samples."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpace.core.errors import ConfigError
from fedpace.learn.metrics.loss import TokenLoss
from fedpace.learn.model.weights import Weights
from fedpace.learn.server.evaluate import Evaluator, samples_at_once
from fedpace.learn.tasks.task import Task
from fedpace.learn.train.trainer import Trainer, TrainSettings
from tests.learn.learning_toys import CallCounter, normed, task


@pytest.fixture
def trainer():
    return Trainer(task(normed), TrainSettings(), 1)


@pytest.mark.parametrize("batch_size", [500, 7])
def test_batches_give_the_accuracy_and_loss_of_the_whole(batch_size):
    divided = task(normed)
    trainer = Trainer(divided, TrainSettings(), 1)
    model = normed().eval()
    trainer.layout.bind(model).load(trainer.initial())
    outputs = model(divided.test[0])
    found = Evaluator(divided, trainer.layout, trainer.new_model(), batch_size)(trainer.initial())
    accuracy, loss = found["accuracy"], found["loss"]
    assert accuracy == int((outputs.argmax(1) == divided.test[1]).sum()) / 30
    assert loss == pytest.approx(cross_entropy(outputs, divided.test[1]).item(), rel=1e-5)


def test_evaluating_leaves_weights_and_generator_alone():
    divided = task(normed)
    trainer = Trainer(divided, TrainSettings(), 1)
    before = trainer.initial().buffers.clone()
    state = torch.get_rng_state()
    Evaluator(divided, trainer.layout, trainer.new_model())(trainer.initial())
    assert torch.equal(trainer.initial().buffers, before)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_task_may_bring_its_own_loss_and_count_its_own_hits():
    rows = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    near = Task(
        lambda: nn.Linear(1, 1, bias=False),
        (rows, rows),
        (rows, rows + torch.tensor([[0.0], [0.1], [1.0], [2.0]])),
        loss=nn.functional.mse_loss,
        accuracy=lambda outputs, targets: (outputs - targets).abs() < 0.5,
    )
    layout = Trainer(near, TrainSettings(), 1).layout
    one = Weights(torch.ones(1), torch.empty(0), torch.empty(0, dtype=torch.int64))
    found = Evaluator(near, layout, near.model(), batch_size=3)(one)
    assert found["accuracy"] == 0.5
    assert found["loss"] == pytest.approx((0 + 0.01 + 1 + 4) / 4)


def test_an_accuracy_of_the_wrong_shape_is_refused(trainer):
    wrong = replace(trainer.task, accuracy=lambda outputs, targets: outputs.mean())
    with pytest.raises(ConfigError, match="accuracy gives"):
        Evaluator(wrong, trainer.layout, trainer.new_model())(trainer.initial())


def test_what_a_model_draws_and_does_not_save_is_the_same_wherever_it_is_made(trainer):
    class Featured(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.register_buffer("features", torch.randn(4), persistent=False)

    one = Trainer(replace(trainer.task, model=Featured), TrainSettings(), 7)
    assert torch.equal(one.new_model().features, one.new_model().features)


@pytest.mark.parametrize("metric", ["accuracy", "token_accuracy"])
def test_no_number_is_read_batch_by_batch(metric):
    inputs, targets = torch.randn(40, 5, 4), torch.randint(1, 4, (40, 5))
    own = Task(lambda: nn.Linear(4, 4), (inputs, targets), (inputs, targets), metrics=metric)
    own = replace(own, loss=TokenLoss(ignore=0))
    layout = Trainer(own, TrainSettings(), 1).layout
    weights = Trainer(own, TrainSettings(), 1).initial()
    evaluator = Evaluator(own, layout, own.model(), batch_size=4)
    with CallCounter(torch.ops.aten.item.default) as read:
        evaluator(weights)
    assert read.count < 4


@pytest.mark.parametrize(
    ("model", "device", "samples"),
    [
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)), "cpu", 200),
        (nn.LSTM(4, 3), "cpu", 200),
        (nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU()), "cpu", 500),
        (nn.Conv2d(1, 2, 3), "cuda", 500),
    ],
)
def test_a_test_takes_smaller_batches_where_they_stay_in_caches(model, device, samples):
    assert samples_at_once(model, torch.device(device)) == samples


def test_tests_are_made_of_such_batches():
    sizes = []

    def watched():
        model = nn.Sequential(nn.Conv1d(1, 2, 1), nn.Flatten(), nn.Linear(8, 3))
        model.register_forward_pre_hook(lambda _, given: sizes.append(len(given[0])))
        return model

    samples = torch.randn(450, 1, 4), torch.randint(0, 3, (450,))
    wide = Task(watched, samples, samples)
    trainer = Trainer(wide, TrainSettings(), 1)
    evaluator = Evaluator(wide, trainer.layout, watched())
    sizes.clear()
    evaluator(trainer.initial())
    assert sizes == [200, 200, 50]
