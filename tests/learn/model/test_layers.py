"""Layers in execution order, and models as flat vectors."""

import pytest
import torch
from torch import nn

from fedpace.core.errors import ConfigError
from fedpace.learn.model.layers import Layout
from tests.learn.learning_toys import Recurrent, Swapped, Tied, names, normed

ROWS = torch.randn(3, 4)
TOKENS = torch.randint(0, 11, (3, 5))


def test_layers_come_in_the_order_in_which_they_run_not_in_which_they_are_registered():
    layout = Layout.trace(Swapped(), ROWS)
    assert names(layout) == ("first", "middle", "head")
    assert [start.params for start in layout.starts] == [0, 25, 61, 82]


def test_the_last_layers_are_a_suffix_of_the_flat_vector():
    model = Swapped()
    layout = Layout.trace(model, ROWS)
    suffix = layout.read(model).params[layout.start(1).params :]
    assert torch.equal(suffix, torch.cat([model.head.weight.flatten(), model.head.bias]).detach())
    assert layout.start(0).params == layout.read(model).params.numel()


def test_a_layer_that_runs_several_times_has_the_place_of_its_last_run():
    layout = Layout.trace(Recurrent(), ROWS)
    assert names(layout) == ("encode", "cell", "decode")
    assert len(layout.calls["cell"].starts) == 4


def test_a_tied_weight_is_stored_once_with_the_layer_that_uses_it_last():
    model = Tied()
    layout = Layout.trace(model, TOKENS)
    assert names(layout) == ("body.0", "body.1", "body.2", "head")
    assert layout.layers[-1].params == ("embed.weight",)
    assert layout.start(0).params == 66 + 3 * 42


def test_parameters_that_a_parent_uses_directly_have_the_place_of_the_parent():
    model = nn.ModuleDict({"before": nn.Linear(4, 4), "attend": nn.MultiheadAttention(4, 2)})
    model.forward = lambda x: model["attend"](*[model["before"](x)] * 3)[0]
    layout = Layout.trace(model, ROWS)
    assert names(layout) == ("before", "attend", "attend.out_proj")


def test_a_layer_that_never_runs_comes_first():
    model = Swapped()
    model.unused = nn.Linear(2, 2)
    assert names(Layout.trace(model, ROWS)) == ("unused", "first", "middle", "head")


def test_parameters_of_the_model_itself_have_the_place_of_its_start():
    model = Swapped()
    model.offset = nn.Parameter(torch.zeros(4))
    assert names(Layout.trace(model, ROWS)) == ("Swapped", "first", "middle", "head")


def test_buffers_belong_to_their_layer_and_counters_are_apart():
    layout = Layout.trace(normed(), ROWS)
    assert layout.layers[1].buffers == ("1.running_mean", "1.running_var")
    assert layout.layers[1].counters == ("1.num_batches_tracked",)
    assert layout.layers[1].bytes == 4 * (7 + 7 + 7 + 7) + 8
    assert layout.start(0) == (35 + 14 + 48 + 12 + 21, 26, 2)
    assert layout.start(2) == (35 + 14 + 48, 14, 1)


def test_buffers_without_parameters_go_with_the_layer_that_ran_before_or_else_with_the_first():
    model = nn.Sequential(
        nn.BatchNorm1d(4, affine=False),
        nn.Linear(4, 5),
        nn.BatchNorm1d(5, affine=False),
        nn.Linear(5, 2),
    )
    layout = Layout.trace(model, ROWS)
    assert names(layout) == ("1", "3")
    assert layout.layers[0].counters == ("0.num_batches_tracked", "2.num_batches_tracked")
    assert layout.layers[1].buffers == ()


def test_buffers_that_are_not_saved_are_not_sent_either():
    model = Swapped()
    model.register_buffer("cache", torch.ones(3), persistent=False)
    assert Layout.trace(model, ROWS).start(0).buffers == 0


def test_reading_and_loading_brings_a_model_over():
    source, target = normed(), normed()
    source(torch.randn(8, 4))
    layout = Layout.trace(source, ROWS)
    layout.bind(target).load(layout.read(source))
    for name, value in source.state_dict().items():
        assert torch.equal(value, target.state_dict()[name]), name


def test_half_precision_and_channels_last_survive_the_flat_vector():
    source = nn.Sequential(nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last), nn.Flatten())
    source.bfloat16()
    layout = Layout.trace(source, torch.randn(2, 2, 4, 4).bfloat16())
    weights = layout.read(source)
    assert weights.params.dtype == torch.float32
    assert layout.layers[0].bytes == 2 * weights.params.numel()
    before = source[0].weight.clone()
    with torch.no_grad():
        source[0].weight.zero_()
    layout.bind(source).load(weights)
    assert torch.equal(source[0].weight, before)


@pytest.mark.parametrize("make", [Swapped, lambda: nn.Linear(4, 3, bias=False)])
def test_weights_read_from_a_model_do_not_change_with_it(make):
    model = make()
    layout = Layout.trace(model, ROWS)
    weights = layout.read(model)
    before = weights.params.clone()
    with torch.no_grad():
        for param in model.parameters():
            param.add_(1)
    assert torch.equal(weights.params, before)


def test_tracing_changes_neither_buffers_nor_modes_nor_the_generator():
    model = normed()
    model[1].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    state = torch.get_rng_state()
    Layout.trace(model, ROWS[:1])
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_parameters_without_gradients_are_constants_that_every_bound_model_gets():
    source, target = Swapped(), Swapped()
    for param in source.first.parameters():
        param.requires_grad_(False)
    layout = Layout.trace(source, ROWS)
    assert names(layout) == ("middle", "head")
    layout.bind(target).load(layout.read(source))
    assert torch.equal(source(ROWS), target(ROWS))


def test_a_model_without_trainable_parameters_is_refused():
    with pytest.raises(ConfigError, match="no trainable parameters"):
        Layout.trace(nn.ReLU(), ROWS)


def test_a_model_without_shapes_is_refused():
    with pytest.raises(ConfigError, match="explicit input sizes"):
        Layout.trace(nn.LazyLinear(3), ROWS)
