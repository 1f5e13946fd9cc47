"""Models for the next token."""

import pytest
import torch

from fedpace.core.errors import ConfigError
from fedpace.learn.model.layers import Layout
from fedpace.learn.tasks.models.text import build_text_model

TOKENS, LENGTH = 20, 12


def small(name):
    return build_text_model(name, TOKENS, LENGTH, 16, 64).eval()


def params(model):
    return sum(param.numel() for param in model.parameters())


def test_the_lstm_for_characters_is_the_one_of_leaf():
    model = build_text_model("lstm", 80, 80)
    cells = 4 * 256 * (8 + 256 + 2) + 4 * 256 * (256 + 256 + 2)
    assert params(model) == 80 * 8 + cells + 257 * 80


def test_albert_has_a_narrow_embedding_and_one_block_whatever_its_depth():
    model = build_text_model("albert", 30_000, 20)
    block = 12 * 256 * 256 + 9 * 256 + 4 * 256
    narrow = 128 * 30_000 + 20 * 128 + 2 * 128 * 256 + 256 + 128 + 4 * 128
    assert params(model) == narrow + block + 30_000
    assert model.layers == 4
    assert model.decode.weight is model.embedding.weight


@pytest.mark.parametrize("name", ["lstm", "albert"])
def test_an_answer_depends_on_what_came_before_and_on_nothing_behind(name):
    model = small(name)
    draw = torch.Generator().manual_seed(1)
    x = torch.randint(2, TOKENS, (3, LENGTH), generator=draw)
    other = x.clone()
    other[:, 7:] = 0  # padding
    with torch.no_grad():
        whole, cut = model(x), model(other)
        other[:, 0] = (x[:, 0] - 1) % 18 + 2
        changed = model(other)
    assert whole.shape == (3, LENGTH, TOKENS)
    torch.testing.assert_close(whole[:, :7], cut[:, :7])
    assert not torch.allclose(cut[:, 6], changed[:, 6])


@pytest.mark.parametrize("name", ["lstm", "albert"])
def test_shorter_sequences_can_be_read_too(name):
    assert small(name)(torch.ones(2, 5, dtype=torch.int32)).shape == (2, 5, TOKENS)


def test_tied_weights_are_one_layer_at_their_last_use():
    layout = Layout.trace(small("albert"), torch.ones(2, LENGTH, dtype=torch.int64))
    names = [layer.name for layer in layout.layers]
    assert names[-1] == "decode"
    assert "embedding" not in names
    assert names[:3] == ["positions", "norm", "widen"]
    assert names[3:9] == [
        f"block.{part}" for part in ("attend", "gather", "norm1", "widen", "narrow", "norm2")
    ]
    assert "embedding.weight" in layout.layers[-1].params


def test_heads_need_a_width_that_they_divide():
    with pytest.raises(ConfigError, match=r"hidden is 100, .* multiple of 64"):
        build_text_model("albert", TOKENS, LENGTH, hidden=100)
    with pytest.raises(ConfigError, match="there is no model 'gpt'"):
        build_text_model("gpt", TOKENS, LENGTH)
