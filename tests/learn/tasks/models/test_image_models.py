"""The models that come with fedpace."""

import pytest
import torch
from torch import nn

from fedpace.core.errors import ConfigError
from fedpace.learn.model.layers import Layout
from fedpace.learn.tasks.models.images import ResponseNorm, build_model


@pytest.mark.parametrize(
    ("name", "shape", "layers", "params"),
    [
        ("mlp", (1, 28, 28), 3, 25_818),
        ("mlp", (3, 32, 32), 3, 99_034),
        ("lrn-cnn", (1, 28, 28), 4, 430_698),
        ("lrn-cnn", (3, 32, 32), 4, 555_178),
        ("cnn", (1, 28, 28), 5, 63_434),
        ("mnist-cnn", (1, 28, 28), 4, 582_026),
        ("resnet20", (3, 32, 32), 39, 269_722),
        ("resnet20-gn", (3, 32, 32), 39, 269_722),
        ("resnet18", (3, 32, 32), 41, 11_173_962),
        ("vgg11", (3, 32, 32), 11, 9_750_922),
        ("vgg11-bn", (3, 32, 32), 19, 9_756_426),
        ("vgg13", (3, 32, 32), 13, 9_935_434),
        ("vgg13-bn", (3, 32, 32), 23, 9_941_322),
    ],
)
def test_every_model_has_its_layers_and_answers_for_each_class(name, shape, layers, params):
    model = build_model(name, shape[0], 10, shape[1:])
    inputs = torch.rand(2, *shape)
    layout = Layout.trace(model, inputs)
    assert layout.depth == layers
    assert layout.start(0).params == params
    assert model(inputs).shape == (2, 10)


def sizes(model):
    """Parameters of each child that has any."""
    counts = [sum(param.numel() for param in child.parameters()) for child in model]
    return [count for count in counts if count]


def test_the_mnist_network_has_the_layers_of_fedcompass_table_8():
    assert sizes(build_model("mnist-cnn", 1, 10)) == [832, 51_264, 524_800, 5_130]


def test_the_mnist_network_computes_what_the_table_says_although_it_pools_first():
    model = build_model("mnist-cnn", 1, 10)
    table = nn.Sequential(
        nn.Conv2d(1, 32, kernel_size=5, stride=1),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=2, stride=2),
        nn.Conv2d(32, 64, kernel_size=5, stride=1),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=2, stride=2),
        nn.Flatten(),
        nn.Linear(1024, 512),
        nn.ReLU(),
        nn.Linear(512, 10),
    )
    for ours, theirs in zip(model.parameters(), table.parameters(), strict=True):
        theirs.data.copy_(ours)
    inputs, targets = torch.randn(7, 1, 28, 28), torch.arange(7)
    for network in (model, table):
        nn.functional.cross_entropy(network(inputs), targets).backward()
    torch.testing.assert_close(model(inputs), table(inputs))
    for ours, theirs in zip(model.parameters(), table.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_resnet18_has_the_blocks_of_fedcompass_table_10():
    model = build_model("resnet18", 3, 10)
    blocks = [73_984, 73_984, 230_144, 295_424, 919_040, 1_180_672, 3_673_088, 4_720_640]
    assert sizes(model) == [1_728, 128, *blocks, 5_130]
    shapes, x = [], torch.rand(2, 3, 32, 32)
    for child in model:
        x = child(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes[2] == (64, 32, 32)
    assert shapes[3:-3:2] == [(64, 32, 32), (128, 16, 16), (256, 8, 8), (512, 4, 4)]
    assert shapes[4:-3:2] == shapes[3:-3:2]
    assert shapes[-2:] == [(512,), (10,)]


def test_a_shortcut_of_resnet18_is_projected_and_one_of_resnet20_is_not():
    x = torch.rand(2, 64, 8, 8)
    block = build_model("resnet18", 3, 10)[5].eval()
    with torch.no_grad():
        block.norm2.weight.zero_()  # leaves the shortcut alone
    conv, norm = block.shortcut
    assert (conv.kernel_size, conv.stride, conv.bias) == ((1, 1), (2, 2), None)
    assert torch.equal(block(x), norm(conv(x)).relu())
    assert build_model("resnet20", 3, 10)[6].shortcut is None


def test_a_projected_shortcut_comes_behind_the_convolutions_that_it_goes_around():
    layout = Layout.trace(build_model("resnet18", 3, 10), torch.rand(2, 3, 32, 32))
    names = [layer.name for layer in layout.layers]
    assert names[:2] == ["0", "1"]
    assert names[2:6] == ["3.conv1", "3.norm1", "3.conv2", "3.norm2"]
    assert names[10:16] == [
        *("5.conv1", "5.norm1", "5.conv2", "5.norm2"),
        *("5.shortcut.0", "5.shortcut.1"),
    ]
    assert names[-1] == "13"


def test_vgg13_has_ten_convolutions_in_five_stages_and_three_dense_layers():
    model = build_model("vgg13", 3, 10)
    convs = [one.out_channels for one in model if isinstance(one, nn.Conv2d)]
    assert convs == [64, 64, 128, 128, 256, 256, 512, 512, 512, 512]
    assert [one.out_features for one in model if isinstance(one, nn.Linear)] == [512, 512, 10]
    assert sum(isinstance(one, nn.MaxPool2d) for one in model) == 5


@pytest.mark.parametrize(("shape", "dense"), [((1, 28, 28), 1568), ((3, 32, 32), 2048)])
def test_the_lrn_network_has_the_layers_of_dynamite(shape, dense):
    model = build_model("lrn-cnn", shape[0], 10, shape[1:])
    kinds = [nn.Conv2d, nn.MaxPool2d, nn.ReLU, ResponseNorm] * 2
    kinds += [nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]
    assert [type(child) for child in model] == kinds
    convs = [one for one in model if isinstance(one, nn.Conv2d)]
    assert [one.weight.shape for one in convs] == [(32, shape[0], 5, 5), (32, 32, 5, 5)]
    assert [one.weight.shape for one in model if isinstance(one, nn.Linear)] == [
        (256, dense),
        (10, 256),
    ]
    assert model[:9](torch.rand(2, *shape)).shape == (2, dense)


@pytest.mark.parametrize("channels", [3, 32])
def test_response_normalisation_is_torch_s_own(channels):
    ours = 30 * torch.randn(4, channels, 5, 3, dtype=torch.float64)
    theirs = ours.clone().requires_grad_()
    ours.requires_grad_()
    usual = nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)(theirs)
    found = ResponseNorm()(ours)
    torch.testing.assert_close(found, usual)
    assert (found - ours).abs().max() > 1
    for one in (found, usual):
        one.pow(3).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


def test_other_channels_and_classes_can_be_asked_for():
    for name in ("cnn", "mnist-cnn", "resnet18"):
        assert build_model(name, 3, 47)(torch.rand(2, 3, 28, 28)).shape == (2, 47)


def test_an_unknown_model_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match="did you mean 'resnet20'"):
        build_model("resnet-20", 3, 10)
