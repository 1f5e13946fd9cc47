"""Models for spoken words."""

import pytest
import torch

from fedpace.core.errors import ConfigError
from fedpace.learn.model.layers import Layout
from fedpace.learn.tasks.models.speech import LightGru, build_speech_model


def params(model):
    return sum(param.numel() for param in model.parameters())


def test_the_light_model_has_the_79044_parameters_of_timelyfl():
    model = build_speech_model("gru", 35, (128, 101))
    assert params(model) == 79_044
    parts = {name: params(child) for name, child in model.named_children()}
    assert parts == {
        "conv1": 12_320,
        "conv2": 6_208,
        "pool": 0,
        "gru": 49_920,
        "dense1": 8_256,
        "dense2": 2_340,
    }


def test_its_layers_are_two_convolutions_one_gru_and_two_dense_ones():
    model = LightGru(16, 10)
    x = torch.rand(3, 1, 16, 20)
    layout = Layout.trace(model, x)
    assert [layer.name for layer in layout.layers] == ["conv1", "conv2", "gru", "dense1", "dense2"]
    assert model(x).shape == (3, 11)


def test_its_answer_is_of_the_mean_over_time():
    """A steady sound twice as long sounds the same, but for its ends."""
    model = LightGru(16, 10).eval()
    short, long = torch.ones(1, 1, 16, 200), torch.ones(1, 1, 16, 400)
    with torch.no_grad():
        assert (model(short) - model(long)).abs().max() < 0.1 * model(short).abs().max()


@pytest.mark.parametrize(
    ("side", "parameters"), [((32, 32), 9_762_595), ((64, 101), 9_762_595 + 5 * 512 * 512)]
)
def test_vgg11_takes_spectrograms_of_any_size_from_32_on(side, parameters):
    model = build_speech_model("vgg11", 35, side)
    assert model(torch.rand(2, 1, *side)).shape == (2, 35)
    assert params(model) == parameters


def test_a_spectrogram_that_is_too_small_and_an_unknown_model_are_refused():
    with pytest.raises(ConfigError, match="but it has 20x101 points; use 32x32 or more"):
        build_speech_model("vgg11", 10, (20, 101))
    with pytest.raises(ConfigError, match="did you mean 'gru'"):
        build_speech_model("gru2", 10, (32, 32))
