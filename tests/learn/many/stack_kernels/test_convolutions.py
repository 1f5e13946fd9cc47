"""Convolutions of stacks: what is around the kernels, with slow ones in their place."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d

from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks.custom_kernels import StackKernels, usable
from fedpace.learn.many.stacks.stacked import StackedExecutor
from tests.learn.many.test_stack_replay import distance, every_depth, trainer_of
from tests.learn.many.test_stacked import images


class Strided(nn.Module):
    """Convolutions of several strides, paddings and biases, one of them in groups."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, (5, 3), stride=(1, 2), padding=(2, 1))
        self.second = nn.Conv2d(4, 4, 3, padding="same", bias=False)
        self.third = nn.Conv2d(4, 6, 3, stride=2, padding=(1, 0), bias=False)
        self.fourth = nn.Conv2d(6, 6, (1, 2), padding=(0, 1))
        self.norm = nn.GroupNorm(2, 6, eps=0.1)
        self.bare = nn.GroupNorm(3, 6, eps=0.1, affine=False)
        self.fifth = nn.Conv2d(6, 6, 1, groups=2)
        self.head = nn.Linear(36, 3)

    def forward(self, x):
        x = torch.tanh(self.second(torch.tanh(self.first(x))))
        x = self.bare(torch.tanh(self.norm(self.fourth(self.third(x)))))
        return self.head(self.fifth(x).flatten(1))


class Deep(nn.Module):
    """Depthwise convolutions, and two that have other groups or two filters for each channel."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3)
        self.deep1 = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.deep2 = nn.Conv2d(4, 4, 2, stride=(1, 2), groups=4, bias=False)
        self.twice, self.groups = nn.Conv2d(4, 8, 1, groups=4), nn.Conv2d(8, 4, 1, groups=2)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        x = torch.tanh(self.deep2(torch.tanh(self.deep1(self.first(x)))))
        return self.head(self.groups(torch.tanh(self.twice(x))).flatten(1))


def test_depthwise_convolutions_run_on_kernels_of_their_own(kernels):
    trainer = trainer_of(replace(images(), model=Deep), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert kernels.calls["depthwise, weights"] > kernels.calls["depthwise, images"] // 2 > 0
    assert kernels.calls["depthwise"] == kernels.calls["convolve"]  # `first` and `groups`
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


@pytest.mark.parametrize("model", [None, Strided])
def test_updates_are_those_of_training_one_by_one(kernels, model):
    made = images() if model is None else replace(images(), model=model)
    trainer = trainer_of(made, lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert all(kernels.calls[name] for name in ("convolve", "weights_of", "normalise", "slopes_of"))
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("wide", "stride", "ours"), [(2, 3, 0), (4, 5, 0), (2, 2, 1), (3, 3, 1)])
def test_filters_of_even_width_in_odd_strides_are_left_to_torch(kernels, wide, stride, ours, groups):
    x, weights = torch.rand(3, 2, 2, 9, 9), torch.rand(3, 2, 2 // groups, wide, wide)
    with StackKernels():
        found = torch.vmap(partial(conv2d, stride=stride, groups=groups))(x, weights)
    assert sum(kernels.calls.values()) == ours
    expected = [conv2d(*one, stride=stride, groups=groups) for one in zip(x, weights, strict=True)]
    torch.testing.assert_close(found, torch.stack(expected))


def test_weights_that_all_clients_share_are_taken_too(kernels):
    x, weights, bias = torch.rand(3, 2, 1, 8, 8), torch.rand(4, 1, 3, 3), torch.rand(4)
    with StackKernels():
        found = torch.vmap(lambda one: conv2d(one, weights, bias))(x)
    expected = torch.stack([conv2d(one, weights, bias) for one in x])
    assert kernels.calls["convolve"] == 1
    torch.testing.assert_close(found, expected)


def test_kernels_that_give_other_numbers_are_left_for_grouped_convolutions(kernels, monkeypatch):
    right = kernels.convolve
    monkeypatch.setattr(kernels, "convolve", lambda *given: right(*given) * 1.1)
    trainer = trainer_of(images(), lr=0.02)
    work = every_depth(trainer)
    with pytest.warns(UserWarning, match="our kernels fail: gradients in a stack are not those"):
        found = StackedExecutor(trainer).train(work)
    assert distance(found, SerialExecutor(trainer).train(work)) < 1e-4


def test_a_cpu_has_no_kernels():
    assert not usable(torch.device("cpu"))
