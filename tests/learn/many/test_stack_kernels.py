"""Kernels of our own in stacks: what is around the kernels, with slow ones in their place."""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, group_norm
from torch.nn.grad import conv2d_input, conv2d_weight

from fedpace.learn.many import kernels as package
from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks import plan as stack_plan
from fedpace.learn.many.stacks.custom_kernels import StackKernels, usable
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.model.normalised import GroupNormReLU
from tests.learn.many.test_stack_replay import distance, every_depth, trainer_of
from tests.learn.many.test_stacked import images


class Slow:
    """The kernels, client by client in torch; `calls` counts them."""

    def __init__(self):
        self.calls = Counter()

    def convolve(self, x, weights, bias, stride, padding, size, exact):
        self.calls["convolve"] += 1
        biases = [None] * len(x) if bias is None else bias
        each = zip(x, weights, biases, strict=True)
        found = torch.stack([conv2d(*one, stride=stride, padding=padding) for one in each])
        assert found.shape[3:] == size
        return found

    def images_of(self, slopes, weights, stride, padding, size, exact):
        self.calls["images_of"] += 1
        shape = slopes.shape[1], weights.shape[2], *size
        each = zip(weights, slopes, strict=True)
        return torch.stack([conv2d_input(shape, a, b, stride, padding) for a, b in each])

    def weights_of(self, x, slopes, high, wide, stride, padding, exact):
        self.calls["weights_of"] += 1
        shape = slopes.shape[2], x.shape[2], high, wide
        each = zip(x, slopes, strict=True)
        return torch.stack([conv2d_weight(a, shape, b, stride, padding) for a, b in each])

    def normalise(self, x, factors, shifts, groups, eps, relu, more):
        self.calls["normalise"] += 1
        each = [group_norm(a, groups, b, c, eps) for a, b, c in zip(x, factors, shifts, strict=True)]
        parts = x.unflatten(2, (groups, -1)).flatten(3)
        scales = (parts.var(3, correction=0) + eps).rsqrt()
        found = torch.stack(each) if more is None else torch.stack(each) + more
        self.calls["relu"] += relu
        self.calls["more"] += more is not None
        return found.relu() if relu else found, parts.mean(3), scales

    def slopes_of(self, x, factors, means, scales, slopes, y, more):
        self.calls["slopes_of"] += 1
        slopes = slopes if y is None else slopes * (y > 0)
        each = 1, 1, x.shape[2] // means.shape[2]
        levels, widths = (one.repeat_interleave(each[2], 2)[..., None] for one in (means, scales))
        values, inner = (x - levels) * widths, slopes * factors[:, None, :, None]

        def mean(numbers):
            parts = numbers.unflatten(2, (means.shape[2], -1)).flatten(3).mean(3)
            return parts.repeat_interleave(each[2], 2)[..., None]

        found = (inner - mean(inner) - values * mean(inner * values)) * widths
        added = slopes if more else None
        return found, (slopes * values).sum((1, 3)), slopes.sum((1, 3)), added


@pytest.fixture
def kernels(monkeypatch):
    slow = Slow()
    monkeypatch.setattr(package, "convolution", slow, raising=False)
    monkeypatch.setattr(package, "normalisation", slow, raising=False)
    monkeypatch.setattr(stack_plan, "usable", lambda device: True)
    return slow


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


def test_relu_is_part_of_a_normalisation(kernels):
    trainer = trainer_of(replace(images(), model=Residual), lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert kernels.calls["relu"] == kernels.calls["normalise"] == 2 * kernels.calls["more"] > 0
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


@pytest.mark.parametrize("model", [None, Strided])
def test_updates_are_those_of_training_one_by_one(kernels, model):
    made = images() if model is None else replace(images(), model=model)
    trainer = trainer_of(made, lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert all(kernels.calls[name] for name in ("convolve", "weights_of", "normalise", "slopes_of"))
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


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
