"""The models that come with fedpace."""

import pytest
import torch

from fedpace.core.errors import ConfigError
from fedpace.learn.layers import Layout
from fedpace.learn.models import build_model


@pytest.mark.parametrize(
    ("name", "shape", "layers", "params"),
    [
        ("mlp", (1, 28, 28), 3, 25_818),
        ("cnn", (1, 28, 28), 5, 63_434),
        ("resnet20", (3, 32, 32), 39, 269_722),
        ("resnet20-gn", (3, 32, 32), 39, 269_722),
        ("vgg11", (3, 32, 32), 11, 9_750_922),
        ("vgg11-bn", (3, 32, 32), 19, 9_756_426),
    ],
)
def test_every_model_has_its_layers_and_answers_for_each_class(name, shape, layers, params):
    model = build_model(name, shape[0], 10)
    inputs = torch.rand(2, *shape)
    layout = Layout.trace(model, inputs)
    assert layout.depth == layers
    assert layout.start(0).params == params
    assert model(inputs).shape == (2, 10)


def test_other_channels_and_classes_can_be_asked_for():
    assert build_model("cnn", 3, 47)(torch.rand(2, 3, 28, 28)).shape == (2, 47)


def test_an_unknown_model_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match="did you mean 'resnet20'"):
        build_model("resnet-20", 3, 10)
