"""Normalisations of images in stacks, with slow kernels."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks import plan as stack_plan
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.model.normalised import BatchNormReLU, GroupNormReLU, shortcut
from tests.learn.many.test_stack_replay import distance, every_depth, trainer_of
from tests.learn.many.test_stacked import images
from tests.learn.train.test_graphs import Again


class Residual(nn.Module):
    """Normalisations that go on with ReLU, after something was added or not."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 3), nn.Conv2d(6, 6, 3, padding=1)
        self.norm1, self.norm2 = GroupNormReLU(2, 6, eps=0.1), GroupNormReLU(3, 6, eps=0.1)
        self.head = nn.Linear(96, 3)

    def forward(self, x):
        x = self.norm1(self.first(x))
        return self.head(self.norm2(self.second(x), x).flatten(1))


class ResidualBatches(Residual):
    """The same with batch norms, the first of which has no ReLU."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(6, momentum=0.3), BatchNormReLU(6)


@pytest.mark.parametrize("mixed", [False, True])
def test_batch_norms_run_on_kernels_of_their_own(kernels, monkeypatch, mixed):
    trainer = trainer_of(replace(images(), model=ResidualBatches), lr=0.02)
    work = every_depth(trainer)
    if mixed:
        monkeypatch.setattr(stack_plan.StackProbe, "as_in_full", lambda *given: False)
    found, expected = StackedExecutor(trainer).train(work), SerialExecutor(trainer).train(work)
    calls = kernels.calls
    assert calls["batches"] == 2 * calls["batches, relu"] == 2 * calls["batches, more"] > 0
    assert calls["batches, slopes"] > 0 < calls["batches, evaluation"]
    assert calls["images, added"] > 0
    for at, (one, other) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(one.buffers, other.buffers)
        found[at] = replace(one, buffers=other.buffers)
    assert 0 < distance(found, expected) < 1e-4


def test_relu_is_part_of_a_normalisation(kernels):
    trainer = trainer_of(replace(images(), model=Residual), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert kernels.calls["relu"] == kernels.calls["normalise"] == 2 * kernels.calls["more"] > 0
    assert kernels.calls["images, added"] > 0  # gradients of `x`, which is added, to those of `second`
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


class Narrowing(nn.Module):
    """Shortcuts around convolutions with a stride: the same one, and another."""

    def __init__(self, stride):
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 3, 3, padding=1), nn.Conv2d(3, 5, 3, stride, padding=1)
        self.norm1, self.norm2 = GroupNormReLU(1, 3, eps=0.1), GroupNormReLU(5, 5, eps=0.1)
        self.head = nn.Linear(45 if stride == 2 else 180, 3)

    def forward(self, x):
        x = self.norm1(self.first(x))
        out, around = self.second(x), shortcut(x, 2, 5)
        if out.shape != around.shape:
            around = around.repeat_interleave(2, 2).repeat_interleave(2, 3)
        return self.head(self.norm2(out, around).flatten(1))


@pytest.mark.parametrize("stride", [1, 2])
def test_gradients_of_a_shortcut_are_added_where_those_of_its_images_are(kernels, stride):
    trainer = trainer_of(replace(images(), model=lambda: Narrowing(stride)), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    kind = "images, some added" if stride == 2 else "images, added"
    assert kernels.calls[kind] > 0 == kernels.calls["images, added"] * (stride - 1)
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


def test_nothing_is_computed_of_samples_that_fill_up_batches(kernels):
    trainer = trainer_of(replace(images(), model=Residual), lr=0.02)
    work = every_depth(trainer)
    for capture in (None, Again()):
        found = StackedExecutor(trainer, capture=capture).train(work)
        assert kernels.calls["counted"] > 0
        assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4
        kernels.calls["counted"] = 0


def row(norm):
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 3), norm(), nn.ReLU(), nn.Conv2d(6, 6, 3), norm(), nn.ReLU(inplace=True)),
        *(nn.Conv2d(6, 6, 1), norm(), nn.Tanh(), nn.Flatten(), nn.Linear(24, 3)),
    )


@pytest.mark.parametrize(
    "norm", [lambda: nn.GroupNorm(2, 6, eps=0.1), lambda: nn.BatchNorm2d(6, eps=0.1)]
)
def test_a_relu_behind_a_norm_is_made_part_of_it(kernels, norm):
    trainer = trainer_of(replace(images(), model=lambda: row(norm)), lr=0.02)
    kinds = [type(one) for one in trainer.body(None).model]
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    calls = kernels.calls
    if type(norm()) is nn.GroupNorm:
        assert 3 * calls["relu"] == 2 * calls["normalise"] > 0
    else:
        assert 3 * calls["batches, relu"] == 2 * calls["batches"] > 0
    assert [type(one) for one in trainer.body(None).model] == kinds
    expected = SerialExecutor(trainer).train(work)
    found = [replace(one, buffers=other.buffers) for one, other in zip(found, expected, strict=True)]
    assert 0 < distance(found, expected) < 1e-4


class Picked(nn.Module):
    """A row of which modules are called one by one, and one of them twice."""

    def __init__(self):
        super().__init__()
        self.row = nn.Sequential(nn.Conv2d(1, 6, 3), nn.GroupNorm(2, 6), nn.ReLU(), nn.Conv2d(6, 6, 3))
        self.twice = nn.Sequential(nn.GroupNorm(2, 6), nn.ReLU())
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        x = self.row[1](self.row[0](x))
        x = self.row[3](self.row[2](x) + x)
        return self.head((self.twice(x) + self.twice[0](x)).flatten(1))


def test_a_norm_whose_outputs_others_use_has_no_relu(kernels):
    trainer = trainer_of(replace(images(), model=Picked), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert kernels.calls["normalise"] > 0 == kernels.calls["relu"]
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4
