"""Sequences, dense layers and losses of stacks, with slow kernels."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks import shared_gradients
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.metrics.loss import TokenLoss
from tests.learn.many.architectures import TASKS as ARCHITECTURES
from tests.learn.many.test_stack_replay import distance, every_depth, trainer_of
from tests.learn.many.test_stacked import images


def test_steps_of_a_gru_run_on_kernels_of_their_own(kernels):
    trainer = trainer_of(ARCHITECTURES["gru of two layers"](), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert 0 < kernels.calls["gru, slopes"] <= kernels.calls["gru"]
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


def test_rows_are_normalised_as_groups_are(kernels):
    trainer = trainer_of(ARCHITECTURES["encoder"](), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert 0 < kernels.calls["slopes_of"] <= kernels.calls["normalise"]
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


def test_short_sequences_attend_in_a_kernel_of_their_own(kernels):
    trainer = trainer_of(ARCHITECTURES["albert"](), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert 0 < kernels.calls["attention, slopes"] <= kernels.calls["attention"]
    assert kernels.calls["biases"] > 0
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


def test_gradients_of_weights_that_are_used_again_are_summed_where_they_are(kernels, monkeypatch):
    sums = []

    class Noted(shared_gradients.SharedGradient):
        def __init__(self, products):
            sums.append(products)
            super().__init__(products)

    monkeypatch.setattr(shared_gradients, "SharedGradient", Noted)
    trainer = trainer_of(ARCHITECTURES["albert"](), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert set(sums) == {trainer.body(None).model.layers}
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


class Aside(nn.Module):
    """A layer that is used three times: in a row, and once for something that no loss sees."""

    def __init__(self):
        super().__init__()
        self.first, self.again, self.head = nn.Linear(36, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = torch.tanh(self.again(torch.tanh(self.first(x.flatten(1)))))
        self.again(x)
        with torch.no_grad():
            self.again(x)
        return self.head(torch.tanh(self.again(x)))


def test_uses_that_no_loss_sees_are_not_waited_for(kernels):
    trainer = trainer_of(replace(images(), model=Aside), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert distance(found, SerialExecutor(trainer).train(work)) < 1e-4


@pytest.mark.parametrize("loss", [cross_entropy, TokenLoss(ignore=0)])
def test_losses_of_many_classes_run_on_kernels_of_their_own(kernels, loss):
    def model():
        return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.Linear(64, 300))

    trainer = trainer_of(replace(images(), model=model, loss=loss), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    expected = SerialExecutor(trainer).train(work)
    assert 0 < kernels.calls["losses, slopes"] <= kernels.calls["losses"]
    assert 0 < distance(found, expected) < 1e-4
