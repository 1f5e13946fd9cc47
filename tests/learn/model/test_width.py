"""Thinner models: which numbers they hold, what they compute, and which models have none."""

import copy
import math

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from fedpace.core.errors import ConfigError
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.width import slim
from fedpace.learn.tasks.models import build_model
from tests.learn.learning_toys import Recurrent, Tied, names, normed, plain

IMAGES = {
    "mlp": (1, 28, 28),
    "cnn": (1, 28, 28),
    "mnist-cnn": (1, 28, 28),
    "resnet20": (3, 8, 8),
    "resnet20-gn": (3, 8, 8),
    "resnet18": (3, 8, 8),
    "vgg11": (3, 32, 32),
    "vgg11-bn": (3, 32, 32),
}


def thinned(model, inputs, width):
    layout = Layout.trace(model, inputs)
    return layout, slim(model, layout, inputs, width)


def is_within(places, others):
    """Whether all of some places are among others."""
    return bool(torch.isin(places, others, assume_unique=True).all())


def small_conv():
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 2 * 2, 3))


def test_a_thin_perceptron_holds_the_leading_rows_and_columns():
    """4-6-5-2 with half of its channels is 4-3-3-2; places counted by hand."""
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2))
    _, thin = thinned(model, torch.rand(2, 4), 0.5)
    first = [*range(12), *range(24, 27)]  # 3 of 6 rows, then 3 of 6 biases
    second = [30, 31, 32, 36, 37, 38, 42, 43, 44, 60, 61, 62]
    last = [65, 66, 67, 70, 71, 72, 75, 76]  # all outputs stay
    assert thin.params.tolist() == first + second + last
    assert thin.buffers.tolist() == []
    assert thin.params.dtype == thin.buffers.dtype == torch.int64


def test_channels_that_are_flattened_become_leading_features():
    """Two of four channels of 2x2 numbers are the first eight of sixteen features."""
    model = small_conv()
    _, thin = thinned(model, torch.rand(2, 1, 4, 4), 0.5)
    columns = [40 + 16 * row + column for row in range(3) for column in range(8)]
    assert thin.params.tolist() == [*range(18), 36, 37, *columns, 88, 89, 90]


def test_numbers_of_the_thin_model_are_those_of_the_full_one_at_its_places():
    model = normed()
    layout, thin = thinned(model, torch.rand(3, 4), 0.5)
    full, read = layout.read(model), thin.layout.read(thin.model)
    assert torch.equal(read.params, full.params[thin.params])
    assert torch.equal(read.buffers, full.buffers[thin.buffers])
    assert torch.equal(read.counters, full.counters)
    taken = thin.take(full)
    assert torch.equal(taken.params, read.params)
    for name, param in thin.model.named_parameters():
        whole = model.get_parameter(name)
        assert torch.equal(param, whole[tuple(map(slice, param.shape))])
        assert param.requires_grad


@pytest.mark.parametrize("name", IMAGES)
def test_every_model_has_nested_thinner_ones_with_the_same_layers(name):
    model, inputs = build_model(name, IMAGES[name][0], 10), torch.rand(2, *IMAGES[name])
    layout, half = thinned(model, inputs, 0.5)
    quarter = slim(model, layout, inputs, 0.25)
    assert names(half.layout) == names(quarter.layout) == names(layout)
    assert is_within(quarter.params, half.params)
    assert quarter.params.numel() < half.params.numel()
    assert is_within(quarter.buffers, half.buffers)
    assert half.params.unique().numel() == half.params.numel() == half.layout.start(0).params
    assert half.buffers.numel() == half.layout.start(0).buffers
    assert half.model(inputs).shape == (2, 10)


def test_a_thin_model_computes_what_a_small_one_with_its_weights_does():
    model = small_conv()
    inputs = torch.randn(5, 1, 4, 4)
    _, thin = thinned(model, inputs, 0.5)
    small = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    with torch.no_grad():
        small[0].weight.copy_(model[0].weight[:2])
        small[0].bias.copy_(model[0].bias[:2])
        small[3].weight.copy_(model[3].weight[:, :8])
        small[3].bias.copy_(model[3].bias)
    assert torch.equal(thin.model.eval()(inputs), small(inputs))


@pytest.mark.parametrize("width", [0.5, 0.3])
def test_in_training_a_hidden_layer_without_normalisation_keeps_the_size_of_what_it_gives_out(width):
    model, inputs = plain(), torch.randn(5, 4)
    _, thin = thinned(model, inputs, width)
    x = inputs
    for module, full in zip(layers := list(thin.model), model, strict=True):
        x = module.eval()(x)
        if isinstance(module, nn.Linear) and module is not layers[-1]:
            x = x / math.sqrt(module.in_features / full.in_features)
    assert torch.equal(thin.model.train()(inputs), x)
    tested = thin.model.eval()(inputs)
    assert not torch.allclose(tested, x, rtol=0.01)
    bare = copy.deepcopy(thin.model)
    for module in bare:
        module._forward_hooks.clear()
    assert torch.equal(tested, bare(inputs))


def test_in_training_what_is_normalised_next_is_divided_by_the_width():
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    inputs, seen = torch.randn(5, 4), []
    _, thin = thinned(model, inputs, 0.25)
    thin.model[1].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    thin.model.train()(inputs)
    thin.model.eval()(inputs)
    assert torch.allclose(seen[0], seen[1] / 0.25)


def test_the_answers_of_a_deep_plain_network_do_not_grow_as_it_gets_thinner():
    model, inputs = build_model("vgg11", 3, 10).eval(), torch.rand(2, 3, 32, 32)
    sizes = []
    for width in (1.0, 0.25, 0.0625):
        _, thin = thinned(model, inputs, width)
        for module in thin.model.train().modules():
            module.training = module.training and not isinstance(module, nn.Dropout)
        sizes.append(float(thin.model(inputs).detach().std()))
    assert max(sizes) < 10 * sizes[0]


def test_the_whole_width_is_the_model_itself():
    model, inputs = normed(), torch.rand(3, 4)
    layout, thin = thinned(model, inputs, 1.0)
    assert (thin.model, thin.layout) == (model, layout)
    assert thin.params.tolist() == list(range(layout.start(0).params))
    assert thin.buffers.tolist() == list(range(layout.start(0).buffers))
    assert not any(module._forward_hooks for module in model.modules())


def test_thinning_changes_neither_the_model_nor_the_generator():
    model, inputs = normed(), torch.randn(6, 4)
    model[2].eval()
    layout = Layout.trace(model, inputs)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    thin = slim(model, layout, inputs, 0.5)
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), state)
    assert [one.training for one in thin.model] == [one.training for one in model]
    assert (model[0].out_features, thin.model[0].out_features) == (7, 4)


def test_shares_that_are_not_exact_in_binary_keep_their_channels():
    """0.1 * 30 is a little more than 3 in floating point."""
    model = nn.Sequential(nn.Linear(4, 30), nn.Linear(30, 2))
    assert thinned(model, torch.rand(2, 4), 0.1)[1].model[0].out_features == 3


def test_norms_of_all_kinds_follow_the_channels_that_come_in():
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1),
        nn.GroupNorm(6, 12),
        nn.Conv2d(12, 12, 3, groups=12),
        nn.InstanceNorm2d(12, affine=True, track_running_stats=True),
        nn.BatchNorm2d(12, affine=False),
        nn.Flatten(),
        nn.Linear(48, 10),
        nn.LayerNorm(10),
        nn.Linear(10, 3),
    )
    _, thin = thinned(model, torch.rand(2, 1, 4, 4), 1 / 3)
    group, depthwise, instance, batch, norm = (thin.model[place] for place in (1, 2, 3, 4, 7))
    assert (group.num_groups, group.num_channels) == (2, 4)
    assert (depthwise.groups, depthwise.weight.shape) == (4, (4, 1, 3, 3))
    assert len(instance.running_mean) == len(batch.running_var) == 4
    assert norm.normalized_shape == (4,)


def test_frozen_weights_are_thinned_too_and_stay_frozen():
    model = plain()
    for frozen in (model[2], model[6]):
        frozen.requires_grad_(False)
    _, thin = thinned(model, torch.rand(2, 4), 0.5)
    assert torch.equal(thin.layout.constants["2.weight"], model[2].weight[:3, :4])
    assert torch.equal(thin.layout.constants["6.weight"], model[6].weight[:, :3])
    assert not thin.model[2].weight.requires_grad
    assert thin.params.numel() == thin.layout.start(0).params
    assert [bool(one._forward_hooks) for one in thin.model[::2]] == [True, True, True, False]


class Concatenated(nn.Module):
    """Two branches side by side: the leading channels of both are not leading in the next layer."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(4, 4), nn.Linear(4, 4)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(torch.cat([self.left(x), self.right(x)], 1))


class Counted(nn.Module):
    """Flattens by a number that stands in its code, which takes rows from other samples."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(1, 4, 3), nn.Linear(16, 2)

    def forward(self, x):
        return self.head(self.conv(x).view(-1, 16))


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.one, self.two = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 2)

    def forward(self, x):
        x = self.body(x)
        return self.one(x), self.two(x)


@pytest.mark.parametrize(
    ("model", "inputs", "reason"),
    [
        (Tied(), torch.zeros(2, 3, dtype=torch.int64), r"module 'embed' \(Embedding\) with parameters"),
        (nn.LSTM(4, 6), torch.rand(2, 3, 4), r"module '' \(LSTM\)"),
        (nn.Sequential(nn.ConvTranspose1d(4, 6, 3)), torch.rand(2, 4, 5), "ConvTranspose1d"),
        (nn.Sequential(weight_norm(nn.Linear(4, 6)), nn.Linear(6, 2)), torch.rand(2, 4), "original0"),
        (nn.Sequential(nn.LayerNorm((3, 4)), nn.Linear(4, 2)), torch.rand(2, 3, 4), "LayerNorm"),
        (
            nn.Sequential(nn.Conv1d(4, 8, 1, groups=2), nn.Conv1d(8, 2, 1)),
            torch.rand(2, 4, 3),
            "'0' has 2 groups for 4 channels in and 8 out",
        ),
        (Recurrent(), torch.rand(2, 3), "fails at or behind layer 'cell'"),
        (Concatenated(), torch.rand(2, 4), "leading channels of those before it"),
        (Counted(), torch.rand(2, 1, 4, 4), "leading channels of those before it"),
        (TwoHeads(), torch.rand(2, 4), "leading channels of those before it"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_a_model_that_cannot_be_thinned_is_refused_with_what_can(model, inputs, reason):
    with pytest.raises(ConfigError, match=reason):
        thinned(model, inputs, 0.5)


def test_a_shared_parameter_is_refused():
    model = plain()
    model[4] = nn.Linear(6, 6)
    model[6] = nn.Linear(6, 6)
    model[6].weight = model[4].weight
    with pytest.raises(ConfigError, match="parameter 'weight' of module '6' is also one of '4'"):
        thinned(model, torch.rand(2, 4), 0.5)


@pytest.mark.parametrize("width", [0.0, -0.5, 1.5])
def test_a_width_that_is_no_share_is_refused(width):
    with pytest.raises(ConfigError, match="above 0 and at most 1"):
        thinned(plain(), torch.rand(2, 4), width)
