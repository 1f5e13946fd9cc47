"""Kernels of our own in stacks: what is around the kernels, with slow ones in their place."""

from collections import Counter
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import conv2d, cross_entropy, group_norm
from torch.nn.grad import conv2d_input, conv2d_weight

from fedpace.learn.many import kernels as package
from fedpace.learn.many.executor import SerialExecutor
from fedpace.learn.many.stacks import plan as stack_plan
from fedpace.learn.many.stacks import shared_gradients
from fedpace.learn.many.stacks.custom_kernels import StackKernels, usable
from fedpace.learn.many.stacks.stacked import StackedExecutor
from fedpace.learn.metrics.loss import TokenLoss
from fedpace.learn.model.attention import attend_packed
from fedpace.learn.model.normalised import BatchNormReLU, GroupNormReLU
from tests.learn.many.architectures import TASKS as ARCHITECTURES
from tests.learn.many.test_stack_replay import distance, every_depth, trainer_of
from tests.learn.many.test_stacked import images
from tests.learn.train.test_graphs import Again


def real(images, counts):
    """Images of [clients, samples, ...] with nothing in those that only fill up a batch."""
    if counts is None:
        return images
    shown = torch.arange(images.shape[1]) < counts[:, None]
    return torch.where(shown.view(*shown.shape, *[1] * (images.ndim - 2)), images, 0)


class Slow:
    """The kernels, client by client in torch; `calls` counts them."""

    def __init__(self):
        self.calls = Counter()

    def convolve(self, x, weights, bias, stride, padding, size, exact, counts):
        self.calls["counted"] += counts is not None
        self.calls["convolve"] += 1
        biases = [None] * len(x) if bias is None else bias
        each = zip(x, weights, biases, strict=True)
        found = torch.stack([conv2d(*one, stride=stride, padding=padding) for one in each])
        assert found.shape[3:] == size
        return real(found, counts)

    def images_of(self, slopes, weights, stride, padding, size, exact, into, counts):
        self.calls["images_of"] += 1
        self.calls["images, added"] += into is not None
        shape = slopes.shape[1], weights.shape[2], *size
        each = zip(weights, slopes, strict=True)
        found = torch.stack([conv2d_input(shape, a, b, stride, padding) for a, b in each])
        return real(found, counts) if into is None else into.add_(real(found, counts))

    def weights_of(self, x, slopes, high, wide, stride, padding, exact, counts):
        self.calls["weights_of"] += 1
        shape = slopes.shape[2], x.shape[2], high, wide
        each = zip(x, real(slopes, counts), strict=True)
        return torch.stack([conv2d_weight(a, shape, b, stride, padding) for a, b in each])

    def normalise(self, x, factors, shifts, groups, eps, relu, more, counts=None):
        self.calls["normalise"] += 1
        x = real(x, counts)
        each = [group_norm(a, groups, b, c, eps) for a, b, c in zip(x, factors, shifts, strict=True)]
        parts = x.unflatten(2, (groups, -1)).flatten(3)
        scales = (parts.var(3, correction=0) + eps).rsqrt()
        found = torch.stack(each) if more is None else torch.stack(each) + more
        self.calls["relu"] += relu
        self.calls["more"] += more is not None
        return found.relu() if relu else found, parts.mean(3), scales

    def slopes_of(self, x, factors, means, scales, slopes, y, more, counts=None):
        self.calls["slopes_of"] += 1
        x, slopes = real(x, counts), real(slopes, counts)
        slopes = slopes if y is None else slopes * (y > 0)
        each = 1, 1, x.shape[2] // means.shape[2]
        levels, widths = (one.repeat_interleave(each[2], 2)[..., None] for one in (means, scales))
        values, inner = (x - levels) * widths, slopes * factors[:, None, :, None]

        def mean(numbers):
            parts = numbers.unflatten(2, (means.shape[2], -1)).flatten(3).mean(3)
            return parts.repeat_interleave(each[2], 2)[..., None]

        found = (inner - mean(inner) - values * mean(inner * values)) * widths
        added = slopes.clone() if more else None
        return found, (slopes * values).sum((1, 3)), slopes.sum((1, 3)), added


class SlowDepthwise:
    """The kernels of depthwise convolutions, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def convolve(self, x, weights, bias, stride, padding, size):
        self.calls["depthwise"] += 1
        biases = [None] * len(x) if bias is None else bias
        each = zip(x, weights.unsqueeze(2), biases, strict=True)
        found = [conv2d(*one, stride, padding, groups=x.shape[2]) for one in each]
        assert found[0].shape[2:] == size
        return torch.stack(found)

    def images_of(self, slopes, weights, stride, padding, size):
        self.calls["depthwise, images"] += 1
        shape, how = (*slopes.shape[1:3], *size), (stride, padding, 1, slopes.shape[2])
        each = zip(weights.unsqueeze(2), slopes, strict=True)
        return torch.stack([conv2d_input(shape, a, b, *how) for a, b in each])

    def weights_of(self, x, slopes, sides, stride, padding):
        self.calls["depthwise, weights"] += 1
        shape, how = (x.shape[2], 1, *sides), (stride, padding, 1, x.shape[2])
        each = zip(x, slopes, strict=True)
        return torch.stack([conv2d_weight(a, shape, b, *how).squeeze(1) for a, b in each])


class SlowBatches:
    """The kernels of batch normalisation, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def normalise(self, x, factors, shifts, running, real, held, training, momentum, eps, relu, more):
        self.calls["batches"] += 1
        self.calls["batches, relu"] += relu
        self.calls["batches, more"] += more is not None
        self.calls["batches, evaluation"] += not training
        means, scales, shares = (torch.zeros_like(factors) for _ in range(3))
        for client, own in enumerate(x):
            old = [one[client].clone() for one in running]
            means[client], variance = old
            if training and (held is None or not held[client]):
                some = own if real is None else own[real[client] > 0]
                count = some[:, 0].numel()
                variance, means[client] = torch.var_mean(some, (0, 2), correction=0)
                shares[client] = 1 / count
                new = means[client], variance * count / (count - 1)
                for one, before, now in zip(running, old, new, strict=True):
                    one[client] = before + momentum * (now - before)
            scales[client] = (variance + eps).rsqrt()
        values = (x - means[:, None, :, None]) * (scales * factors)[:, None, :, None]
        found = values + shifts[:, None, :, None]
        found = found if more is None else found + more
        return found.relu() if relu else found, means, scales, shares

    def slopes_of(self, x, factors, shifts, means, scales, shares, real, slopes, relu, y, more):
        self.calls["batches, slopes"] += 1
        values = (x - means[:, None, :, None]) * scales[:, None, :, None]
        if relu:
            given = values * factors[:, None, :, None] + shifts[:, None, :, None] if y is None else y
            slopes = slopes * (given > 0)
        of_factors, of_shifts = (slopes * values).sum((1, 3)), slopes.sum((1, 3))
        found = slopes
        if shares is not None:
            part = shares[:, None, :, None] * (1 if real is None else real[:, :, None, None])
            apart = values * of_factors[:, None, :, None] + of_shifts[:, None, :, None]
            found = slopes - part * apart
        found = found * (factors * scales)[:, None, :, None]
        return found, of_factors, of_shifts, None if more is None else slopes.clone()


class SlowGru:
    """The kernels of a GRU's steps, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def forward(self, product, added, state, gate, new, out):
        self.calls["gru"] += 1
        (reset, update, last), (one, two, three) = added.chunk(3, -1), product.chunk(3, -1)
        gate.copy_(torch.cat([reset + 2 * one, update + 2 * two], -1).sigmoid())
        reset, update = gate.chunk(2, -1)
        new.copy_(torch.tanh(last + reset * three))
        out.copy_(new + update * (state - new))

    def backward(self, factors, slopes, update, back):
        self.calls["gru, slopes"] += 1
        factors.mul_(slopes.unsqueeze(-2))
        back.add_(slopes * update)


class SlowLosses:
    """The kernels of cross entropy, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def losses_of(self, scores, targets, ignored):
        self.calls["losses"] += 1
        found = cross_entropy(scores, targets, ignore_index=ignored, reduction="none")
        return found, scores.logsumexp(1)

    def slopes_of(self, scores, targets, sizes, slopes, ignored):
        self.calls["losses, slopes"] += 1
        rows = torch.arange(len(scores))
        found = torch.exp(scores - sizes[:, None])
        found[rows, targets.clamp(min=0)] -= 1
        return found * (slopes * (targets != ignored))[:, None]


class SlowAttention:
    """The kernels of attention, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def attend(self, parts, causal, exact):
        self.calls["attention"] += 1
        return attend_packed(parts, causal).unflatten(2, parts.shape[3:])

    def parts_of(self, parts, slopes, causal, exact):
        self.calls["attention, slopes"] += 1
        with torch.enable_grad():
            parts = parts.detach().requires_grad_()
            return torch.autograd.grad(attend_packed(parts, causal), parts, slopes.flatten(2))[0]


class SlowBiases:
    """The kernel of dense layers' biases, likewise."""

    def __init__(self, calls):
        self.calls = calls

    def add_bias(self, y, bias):
        self.calls["biases"] += 1
        y += bias[:, None]


@pytest.fixture
def kernels(monkeypatch):
    slow = Slow()
    monkeypatch.setattr(package, "gru", SlowGru(slow.calls), raising=False)
    monkeypatch.setattr(package, "attention", SlowAttention(slow.calls), raising=False)
    monkeypatch.setattr(package, "dense", SlowBiases(slow.calls), raising=False)
    monkeypatch.setattr(package, "cross_entropy", SlowLosses(slow.calls), raising=False)
    monkeypatch.setattr(package, "depthwise", SlowDepthwise(slow.calls), raising=False)
    monkeypatch.setattr(package, "batch_norm", SlowBatches(slow.calls), raising=False)
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


@pytest.mark.parametrize("model", [None, Strided])
def test_updates_are_those_of_training_one_by_one(kernels, model):
    made = images() if model is None else replace(images(), model=model)
    trainer = trainer_of(made, lr=0.02)
    work = every_depth(trainer)
    found = StackedExecutor(trainer).train(work)
    assert all(kernels.calls[name] for name in ("convolve", "weights_of", "normalise", "slopes_of"))
    assert 0 < distance(found, SerialExecutor(trainer).train(work)) < 1e-4


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
