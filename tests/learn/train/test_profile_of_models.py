"""What training to each depth costs."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpace.learn.model.layers import Layout
from fedpace.learn.tasks.models import build_model
from fedpace.learn.train.profile import profile
from tests.learn.learning_toys import normed, plain


def profiled(name, shape, method="flops", samples=2):
    model = build_model(name, shape[0], 10)
    inputs = torch.rand(samples, *shape)
    targets = torch.zeros(samples, dtype=torch.int64)
    return profile(model, Layout.trace(model, inputs), inputs, targets, cross_entropy, method)


MODELS = [("cnn", (1, 28, 28)), ("resnet20", (3, 32, 32)), ("vgg11", (3, 32, 32))]


@pytest.mark.parametrize(("name", "shape"), MODELS)
def test_the_forward_pass_is_about_a_third_and_every_layer_adds_to_the_backward_pass(name, shape):
    made = profiled(name, shape)
    forward = sum(layer.forward for layer in made.layers)
    backward = sum(layer.backward for layer in made.layers)
    assert 0.25 <= forward / (forward + backward) <= 0.40
    assert all(layer.backward > 0 for layer in made.layers)
    assert all(layer.forward > 0 for layer in made.layers)
    assert made.compute_share[-1] == 1


def test_the_last_layer_costs_its_own_backward_pass_and_not_more():
    made = profiled("cnn", (1, 28, 28), samples=20)
    weight_gradient = 2 * 20 * 192 * 10
    assert weight_gradient <= made.layers[-1].backward <= 1.1 * weight_gradient


def test_counts_of_a_linear_layer_follow_the_formula():
    model = nn.Sequential(nn.Linear(4, 7, bias=False), nn.Linear(7, 3, bias=False))
    inputs = torch.randn(5, 4)
    made = profile(model, Layout.trace(model, inputs), inputs, inputs, lambda out, _: out.sum())
    first, last = 2 * 5 * 4 * 7, 2 * 5 * 7 * 3
    assert made.layers[0].forward == first
    assert made.layers[1].forward == last + 1  # the sum
    # Weight gradients of both, and the input gradient of the last layer once the first is trained.
    assert abs(made.layers[1].backward - last) <= 30
    assert made.layers[0].backward == first + last


def test_products_inside_a_recurrent_layer_are_counted():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(4, 8, batch_first=True)
            self.head = nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.lstm(x)[0][:, -1])

    inputs = torch.randn(2, 5, 4)
    targets = torch.zeros(2, dtype=torch.int64)
    model = Model()
    made = profile(model, Layout.trace(model, inputs), inputs, targets, cross_entropy)
    assert made.layers[0].forward > 2 * 2 * 5 * (4 + 8) * 32


def test_counting_twice_gives_the_same_profile():
    assert profiled("cnn", (1, 28, 28)) == profiled("cnn", (1, 28, 28))


@pytest.mark.parametrize("method", ["flops", "clock", "ideal", "even"])
def test_profiling_changes_neither_the_model_nor_the_generator(method):
    model, inputs = normed(), torch.randn(6, 4)
    targets = torch.zeros(6, dtype=torch.int64)
    layout = Layout.trace(model, inputs)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    profile(model, layout, inputs, targets, cross_entropy, method, (0.5,))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(param.grad is None and param.requires_grad for param in model.parameters())
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.backends.mkldnn.enabled
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_clocked_profile_never_falls_with_depth():
    inputs, targets = torch.randn(6, 4), torch.zeros(6, dtype=torch.int64)
    model = plain()
    made = profile(model, Layout.trace(model, inputs), inputs, targets, cross_entropy, "clock")
    assert np.all(np.diff(made.compute_share) >= 0)
    assert 0 < made.compute_share[0] < 1


def test_an_ideal_profile_costs_the_bytes_that_are_trained():
    made = profiled("vgg11", (3, 32, 32), "ideal")
    assert np.array_equal(made.compute_share, made.byte_share)


def test_a_thinner_model_has_its_own_bytes_and_its_share_of_the_operations():
    """6-8-4 without biases is 6-4-4 at half: 40 of 80 numbers; 6-2-4 at a quarter: 20."""
    model = nn.Sequential(nn.Linear(6, 8, bias=False), nn.Linear(8, 4, bias=False))
    inputs = torch.randn(2, 6)
    layout = Layout.trace(model, inputs)
    made = profile(model, layout, inputs, inputs, lambda out, _: out.sum(), widths=(1.0, 0.5, 0.25))
    assert [width.share for width in made.widths] == [1.0, 0.5, 0.25]
    assert [width.bytes for width in made.widths] == [320, 160, 80]
    assert made.widths[0].compute == 1.0
    # Products of the full step: 2 * 2 samples * (2 * 48 + 3 * 32); the rest is a few sums.
    for width in made.widths[1:]:
        assert width.compute == pytest.approx(width.share, rel=0.25)
    assert made.width(0.5) == made.widths[1]


def test_half_of_a_convolutional_network_costs_about_a_quarter_whatever_the_method():
    model, inputs = build_model("cnn", 1, 10), torch.rand(4, 1, 28, 28)
    layout, targets = Layout.trace(model, inputs), torch.zeros(4, dtype=torch.int64)
    found = {
        profile(model, layout, inputs, targets, cross_entropy, method, (0.5,)).widths
        for method in ("flops", "clock", "ideal", "even")
    }
    ((half,),) = found
    assert 0.2 < half.compute < 0.35
    assert half.bytes == 4 * 16_458
