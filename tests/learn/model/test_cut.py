"""Partial training touches the last layers only, and spends nothing on the others."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpace.core.errors import PolicyError
from fedpace.learn.model.cut import Cut
from fedpace.learn.model.layers import Layout
from fedpace.learn.tasks.models import build_model
from fedpace.learn.train.profile import profile
from tests.learn.learning_toys import (
    CallCounter,
    Recurrent,
    SharedDropout,
    Swapped,
    Tied,
    names,
    normed,
    plain,
)
from tests.sizes import sizes

ROWS = torch.randn(6, 4)
TOKENS = torch.randint(0, 11, (6, 5))
CLASSES = torch.tensor([0, 1, 2, 0, 1, 2])


def gradients(model, inputs, depth):
    """Gradients by parameter name after one backward pass with the last `depth` layers trained."""
    layout = Layout.trace(model, inputs)
    with Cut(layout.bind(model), depth):
        cross_entropy(model(inputs), CLASSES).backward()
    found = {name: param.grad for name, param in model.named_parameters()}
    model.zero_grad(set_to_none=True)
    return layout, found


@pytest.mark.parametrize("make", [plain, Swapped, Recurrent])
def test_gradients_of_trained_layers_equal_those_of_the_full_pass(make):
    model = make()
    layout, full = gradients(model, ROWS, 3 if make is not plain else 4)
    for depth in range(1, layout.depth + 1):
        _, part = gradients(model, ROWS, depth)
        trained = {name for layer in layout.layers[-depth:] for name in layer.params}
        for name, grad in part.items():
            if name in trained:
                assert torch.equal(grad, full[name]), (depth, name)
            else:
                assert grad is None, (depth, name)


@pytest.mark.parametrize("model_name", ["cnn", "mnist-cnn"])
def test_gradients_of_small_convolutional_networks_equal_those_of_the_full_pass(model_name):
    model = build_model(model_name, 1, 3)
    images = torch.rand(6, 1, 28, 28)
    most = Layout.trace(model, images).depth
    layout, full = gradients(model, images, most)
    for depth in range(1, most):
        _, part = gradients(model, images, depth)
        for layer in layout.layers[-depth:]:
            assert all(torch.equal(part[name], full[name]) for name in layer.params)


@sizes("every", 3, 1)
@pytest.mark.parametrize("model_name", ["resnet20", "resnet18"])
def test_gradients_of_residual_networks_equal_those_behind_frozen_statistics(model_name, every):
    model = build_model(model_name, 3, 3)
    images = torch.rand(6, 3, 8, 8)
    layout = Layout.trace(model, images)
    for depth in (
        1,
        4,
        *range(5, 14, every),
        layout.depth - 1,
        layout.depth,
    ):  # across a change of width
        model.train()
        for layer in layout.layers[:-depth]:
            model.get_submodule(layer.module).eval()
        state = {name: value.clone() for name, value in model.state_dict().items()}
        cross_entropy(model(images), CLASSES).backward()
        full = {name: param.grad for name, param in model.named_parameters()}
        model.zero_grad(set_to_none=True)
        model.load_state_dict(state)  # the pass has moved the running statistics
        _, part = gradients(model, images, depth)
        trained = {name for layer in layout.layers[-depth:] for name in layer.params}
        for name, grad in part.items():
            if name in trained:
                assert torch.equal(grad, full[name]), (depth, name)
            else:
                assert grad is None, (depth, name)


def test_a_tied_weight_used_early_gets_the_gradient_of_its_last_use_only():
    tied, apart = Tied(), Tied(tied=False)
    apart.load_state_dict({**tied.state_dict(), "head.weight": tied.head.weight})
    _, of_tied = gradients(tied, TOKENS, 1)
    _, of_apart = gradients(apart, TOKENS, 1)
    assert torch.equal(of_tied["embed.weight"], of_apart["head.weight"])


def test_a_tied_weight_used_early_does_not_make_the_step_dearer():
    def costs(tied):
        model = Tied(tied)
        made = profile(model, Layout.trace(model, TOKENS), TOKENS, CLASSES, cross_entropy)
        return [layer.backward for layer in made.layers[-2:]]

    assert costs(True) == costs(False)


def test_frozen_parameters_get_no_gradient_even_inside_a_module_that_trains_in_part():
    model = nn.ModuleDict({"attend": nn.MultiheadAttention(4, 2), "head": nn.Linear(4, 3)})
    model.forward = lambda x: model["head"](model["attend"](x, x, x)[0])
    layout, part = gradients(model, ROWS, 2)
    assert names(layout) == ("attend", "attend.out_proj", "head")
    assert part["attend.in_proj_weight"] is None
    assert part["attend.out_proj.weight"].abs().max() > 0


def test_prefix_modules_are_in_eval_mode_and_the_others_train():
    model = normed()
    layout = Layout.trace(model, ROWS)
    with Cut(layout.bind(model), 2):  # trains "4" and "6"
        assert [module.training for module in model] == [False] * 4 + [True] * 3


def test_frozen_statistics_stay_and_trained_ones_move():
    model = normed()
    layout = Layout.trace(model, ROWS)
    before = layout.read(model)
    with Cut(layout.bind(model), 2):
        model(ROWS)
    after = layout.read(model)
    at = layout.start(2)
    assert torch.equal(after.buffers[: at.buffers], before.buffers[: at.buffers])
    assert after.counters.tolist() == [0, 1]
    assert not torch.equal(after.buffers[at.buffers :], before.buffers[at.buffers :])


def test_dropout_in_the_prefix_is_off_so_that_its_output_is_always_the_same():
    model = normed()
    layout = Layout.trace(model, ROWS)
    seen = []
    model[3].register_forward_hook(lambda module, args, output: seen.append(output))
    with Cut(layout.bind(model), 2):
        model(ROWS)
        model(ROWS)
    assert torch.equal(*seen)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_shared_dropout_is_off_before_the_cut_and_on_behind_it(depth):
    model = SharedDropout()
    layout = Layout.trace(model, ROWS)
    model.seen.clear()
    with Cut(layout.bind(model), depth):
        model(ROWS)
        model(ROWS)
    # The dropout in front of the first trained layer runs before it; full training cuts nothing off.
    one_pass = [True] * 3 if depth == 3 else [False] * (4 - depth) + [True] * (depth - 1)
    assert model.seen == one_pass * 2


def test_outputs_that_are_not_plain_tensors_are_detached_too():
    class Listing(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x):
            return {"out": [self.first(x), x]}

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.pre = Listing()
            self.head = nn.Linear(4, 4)
            self.head.weight = self.pre.first.weight

        def forward(self, x):
            hidden, x = self.pre(x)["out"]
            self.cut_off = not hidden.requires_grad
            return self.head(hidden + x)

    model = Model()
    layout = Layout.trace(model, ROWS)
    assert names(layout) == ("pre.first", "head")
    with Cut(layout.bind(model), 1):
        model(ROWS)
    assert model.cut_off


def test_a_cut_leaves_no_hooks_and_no_frozen_parameters_behind():
    model = SharedDropout()
    layout = Layout.trace(model, ROWS)
    with pytest.raises(ZeroDivisionError), Cut(layout.bind(model), 1):
        raise ZeroDivisionError
    assert all(param.requires_grad for param in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_depth_beyond_the_model_is_refused():
    model = plain()
    with pytest.raises(PolicyError, match="depth is 5, but the model has 4 layers"):
        Cut(Layout.trace(model, ROWS).bind(model), 5)


def pools():
    """Four layers with a max-pool behind each but the last, images channel by channel."""
    blocks = [(nn.Conv2d(c, 4, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()) for c in (2, 4, 4)]
    return nn.Sequential(*(one for block in blocks for one in block), nn.Flatten(), nn.Linear(4, 3))


@pytest.mark.parametrize(("depth", "places"), [(0, 0), (1, 0), (2, 1), (3, 2), (4, 3)])
def test_only_pools_behind_the_cut_note_where_maxima_are(depth, places):
    model, images = pools(), torch.randn(6, 2, 8, 8)
    bound = Layout.trace(model, images).bind(model)
    places_noted = torch.ops.aten.max_pool2d_with_indices.default
    with CallCounter(places_noted) as seen, Cut(bound, depth):
        model(images)
    with CallCounter(places_noted) as usual, Cut(bound, depth, as_written=True):
        model(images)
    with CallCounter(places_noted) as after:
        model(images)
    assert (seen.count, usual.count, after.count) == (places, 3, 3)


@pytest.mark.parametrize("name", ["vgg11", "vgg11-bn"])
def test_quicker_pools_give_the_gradients_of_the_model_as_written(name):
    model, images = build_model(name, 3, 3), torch.rand(3, 3, 32, 32)
    bound = Layout.trace(model, images).bind(model)
    for depth in range(1, bound.layout.depth):
        found = []
        for as_written in (False, True):
            torch.manual_seed(0)  # of dropout
            with Cut(bound, depth, as_written) as cut:
                found.append(
                    torch.autograd.grad(cross_entropy(model(images), CLASSES[:3]), cut.trained)
                )
        assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
