"""A backward pass that stops between layers has the gradients of the full one as far as it got."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from fedpace.core.errors import PolicyError
from fedpace.learn.device import drawing
from fedpace.learn.model.layers import Layout
from fedpace.learn.model.stopped import StoppedBackward, backward_until
from fedpace.learn.tasks.models import build_model
from fedpace.learn.train.steps import step
from tests.learn.learning_toys import Recurrent, SharedDropout, Swapped, Tied, normed, plain

CPU = torch.device("cpu")
DRAW = torch.Generator().manual_seed(3)
ROWS = torch.randn(6, 4, generator=DRAW)
TOKENS = torch.randint(0, 11, (6, 5), generator=DRAW)
CLASSES = torch.tensor([0, 1, 2, 0, 1, 2])


class Idle(nn.Module):
    """The second of its layers and the last one are of no use to the loss."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x):
        first, second, third, fourth = self.layers
        x = first(x)
        second(x)
        x = third(x)
        fourth(x)
        return x


class Frozen(nn.Sequential):
    """Constants lie between its layers, as a module of their own and inside one."""

    def __init__(self):
        super().__init__(*(nn.Linear(4, 4) for _ in range(4)))
        self[1].requires_grad_(False)
        self[2].bias.requires_grad_(False)


class Blind(torch.autograd.Function):
    """Multiplication that has no gradient for its second factor."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(factor)
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.full((4,), 0.5))

    def forward(self, x):
        return Blind.apply(x, self.factor)


def blind():
    return nn.Sequential(nn.Linear(4, 4), Scale(), nn.Linear(4, 4))


def images(name, side, channels, samples):
    return partial(build_model, name, channels, 10), torch.rand(
        samples, channels, side, side, generator=DRAW
    )


TOYS = {
    **{make.__name__: (make, ROWS) for make in (plain, normed, Swapped, Recurrent, SharedDropout)},
    **{make.__name__: (make, ROWS) for make in (Idle, Frozen, blind)},
    "Tied": (Tied, TOKENS),
    "mlp": images("mlp", 28, 1, 4),
    "mnist-cnn": images("mnist-cnn", 28, 1, 3),
    "resnet20": images("resnet20", 32, 3, 2),
    "vgg11": images("vgg11", 32, 3, 2),
}
IN_ROWS = [name for name in TOYS if name not in ("Tied", "Idle", "blind")]
"""Those whose layers are done one by one, from the output to the input."""


class Bench:
    """A model at fixed weights, and its backward passes, all with the same draws."""

    def __init__(self, name):
        make, self.inputs = TOYS[name]
        with drawing(CPU, 1):
            self.model = make()
        self.layout = Layout.trace(self.model, self.inputs)
        self.bound = self.layout.bind(self.model)
        self._start = self.bound.read(self.layout.depth)
        self.targets = CLASSES[: len(self.inputs)]

    def depths(self):
        """All of them; of a deep model the first, the last and some between."""
        full = self.layout.depth
        return range(1, full + 1) if full < 8 else [1, 2, full // 3, full // 2, full - 1, full]

    def forward(self):
        self.model.zero_grad()
        self.bound.load(self._start)
        self.model.train()
        with drawing(CPU, 2):
            return cross_entropy(self.model(self.inputs), self.targets)

    def gradients(self):
        """By the depth of their layer: 1 is the output."""
        tensors = dict(self.model.named_parameters())
        return [[tensors[name].grad for name in layer.params] for layer in self.layout.layers[::-1]]

    def full(self):
        self.forward().backward()
        return self.gradients(), self.bound.read(self.layout.depth)

    def stopped(self, depth):
        self.model.zero_grad()
        self.bound.load(self._start)
        with StoppedBackward(self.bound, depth) as part, drawing(CPU, 2):
            still = torch.optim.SGD(part.trained, lr=0.0)
            step(self.model, cross_entropy, part, still, self.inputs, self.targets)
        return self.gradients(), self.bound.read(self.layout.depth)

    def until(self, stop):
        return backward_until(self.forward(), self.bound, stop), self.gradients()


def equal(found, expected):
    """Whether lists of gradients are the same bits, or none where there are none."""
    return all(
        (one is None) == (other is None) and (one is None or torch.equal(one, other))
        for layers in zip(found, expected, strict=True)
        for one, other in zip(*layers, strict=True)
    )


def cut_off(gradients, depth):
    """As if the pass had reached `depth` layers."""
    return [layer if at < depth else [None] * len(layer) for at, layer in enumerate(gradients)]


@pytest.mark.parametrize("name", TOYS)
def test_a_pass_to_a_known_depth_has_the_gradients_and_statistics_of_the_full_one(name):
    bench = Bench(name)
    expected, after = bench.full()
    assert any(grad is not None and grad.abs().max() > 0 for layer in expected for grad in layer)
    for depth in bench.depths():
        found, weights = bench.stopped(depth)
        assert equal(found, cut_off(expected, depth)), depth
        assert torch.equal(weights.buffers, after.buffers)
        assert torch.equal(weights.counters, after.counters)


@pytest.mark.parametrize("name", TOYS)
def test_a_pass_that_is_broken_off_has_the_gradients_of_the_full_one_as_far_as_it_got(name):
    bench = Bench(name)
    expected, _ = bench.full()
    for wanted in bench.depths():
        depth, found = bench.until(lambda reached, wanted=wanted: reached >= wanted)
        assert equal(found, cut_off(expected, depth)), wanted
        assert depth == wanted if name in IN_ROWS else depth >= wanted
    assert equal(bench.full()[0], expected)  # the engine is as good as before


@pytest.mark.parametrize("name", IN_ROWS)
def test_a_stop_is_asked_after_every_layer_and_if_it_never_comes_the_pass_is_full(name):
    bench = Bench(name)
    asked = []
    depth, found = bench.until(lambda reached: asked.append(reached) or False)
    assert (depth, asked) == (bench.layout.depth, list(range(1, bench.layout.depth)))
    assert equal(found, bench.full()[0])


@pytest.mark.parametrize("name", IN_ROWS)
def test_a_stop_at_once_leaves_the_output_layer(name):
    depth, found = Bench(name).until(lambda reached: True)
    assert depth == 1
    assert all(grad is not None for grad in found[0])
    assert all(grad is None for layer in found[1:] for grad in layer)


def test_a_tied_weight_is_done_only_with_its_first_use_and_all_layers_with_it():
    bench = Bench("Tied")
    asked = []
    depth, _ = bench.until(lambda reached: asked.append(reached) or True)
    assert (depth, asked) == (4, [])


def test_layers_that_the_loss_does_not_use_count_with_their_neighbours():
    depth, found = Bench("Idle").until(lambda reached: True)
    assert depth == 3  # the unused output, the third, and the unused second
    assert [layer[0] is not None for layer in found] == [False, True, False, False]


def test_a_loss_that_uses_no_layer_reaches_them_all():
    bench = Bench("plain")
    assert backward_until(torch.zeros(()), bench.bound, lambda reached: True) == 4


def test_a_layer_without_a_gradient_is_passed_all_the_same():
    bench = Bench("blind")
    asked = []
    depth, found = bench.until(lambda reached: asked.append(reached) or False)
    assert (depth, asked) == (3, [1, 2])
    assert found[1] == [None]


def test_a_pass_to_a_known_depth_computes_nothing_beyond_it():
    bench = Bench("plain")
    seen = []

    def watch(module, args, output):
        output.register_hook(lambda grad: seen.append(module))

    layers = [module for module in bench.model if isinstance(module, nn.Linear)]
    for layer in layers:
        layer.register_forward_hook(watch)
    bench.stopped(2)
    assert seen == layers[:1:-1]


def test_no_hooks_stay_behind_whatever_ends_the_pass():
    bench = Bench("plain")
    asked = []

    def fail(reached):
        asked.append("failed")
        raise ZeroDivisionError

    # The values are kept, and with them the nodes that hold the hooks.
    first = bench.forward()
    with pytest.raises(ZeroDivisionError):
        backward_until(first, bench.bound, fail)
    second = bench.forward()
    backward_until(second, bench.bound, lambda reached: asked.append(reached) or True)
    bench.full()
    assert asked == ["failed", 1]


@pytest.mark.parametrize("depth", [0, 5])
def test_a_depth_that_the_model_does_not_have_is_refused(depth):
    with pytest.raises(PolicyError, match=f"after {depth} layers, but the model has 4"):
        StoppedBackward(Bench("plain").bound, depth)
