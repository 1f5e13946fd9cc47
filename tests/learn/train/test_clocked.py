"""A clock sees what a task's steps take, no more and no less."""

import pytest
import torch
from torch import nn

from fedpace.learn.model.layers import Layout
from fedpace.learn.settings import TrainSettings
from fedpace.learn.train import clocked
from fedpace.learn.train import optimiser as optimisers
from fedpace.learn.train.profile import profile
from tests.learn.learning_toys import plain


class Time:
    """A clock that stands still but for what the layers say."""

    now = 0.0


class Timed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, scale, layer):
        ctx.layer = layer
        Time.now += layer.forward_s
        return rows * scale

    @staticmethod
    def backward(ctx, slope):
        Time.now += ctx.layer.backward_s
        return slope, slope.sum(), None


class Layer(nn.Module):
    """Takes some seconds for its forward pass, and some for its backward pass."""

    def __init__(self, forward_s, backward_s):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.forward_s, self.backward_s = forward_s, backward_s

    def forward(self, rows):
        return Timed.apply(rows, self.scale, self)


def clocked_profile(monkeypatch, model):
    monkeypatch.setattr(clocked, "_clock", lambda: lambda: Time.now)
    inputs = torch.ones(2, 3)
    layout = Layout.trace(model, inputs)
    return profile(model, layout, inputs, inputs, lambda out, _: out.sum(), "clock")


def test_layers_cost_the_seconds_that_they_take(monkeypatch):
    made = clocked_profile(
        monkeypatch, nn.Sequential(Layer(1.0, 4.0), Layer(2.0, 8.0), Layer(3.0, 2.0))
    )
    assert [layer.forward for layer in made.layers] == pytest.approx([1, 2, 3])
    assert [layer.backward for layer in made.layers] == pytest.approx([4, 8, 2])
    assert made.compute_share == pytest.approx([8 / 20, 16 / 20, 1])


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_the_clock_sees_the_optimiser_that_trains(monkeypatch, kind):
    inputs, targets = torch.randn(6, 4), torch.zeros(6, dtype=torch.int64)
    model, seen = plain(), []
    layout = Layout.trace(model, inputs)
    before = layout.read(model)
    optimiser = getattr(torch.optim, kind)
    monkeypatch.setattr(optimisers, "without_compiler", lambda name: getattr(torch.optim, name))
    monkeypatch.setattr(optimiser, "step", lambda self: seen.append(self))
    settings = TrainSettings(optimiser=kind)
    profile(model, layout, inputs, targets, nn.functional.cross_entropy, "clock", (), settings)
    assert {type(one) for one in seen} == {optimiser}
    assert torch.equal(layout.read(model).params, before.params)
