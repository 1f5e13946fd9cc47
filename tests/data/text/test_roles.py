import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.text.roles import load_roles, read_roles
from tests.shared_data import real_data

PLAY = """KING:
One line.
Two lines.

FOOL:
Nuncle!

KING:
Three lines.
Four lines.
Five lines.

Enter a storm
with wind
"""


def test_lines_go_to_the_role_that_is_named_above_them():
    assert read_roles(PLAY) == {
        "KING": ["One line.", "Two lines.", "Three lines.", "Four lines.", "Five lines."],
        "FOOL": ["Nuncle!"],
    }


def test_the_last_lines_of_each_role_are_its_test(tmp_path):
    (tmp_path / "input.txt").write_text(PLAY)
    made = load_roles(tmp_path, length=20, least=10, test_share=0.4)
    assert made.users == ("KING",)
    text = "".join(made.vocabulary.decode(made.test.x[made.test.x > 0]))
    assert text == "<UNK>o<UNK>r lines.\n<UNK>i<UNK>e lines."
    trained = "".join(made.vocabulary.decode(made.train.x[made.train.x > 0]))
    assert trained == "One line.\nTwo lines.\nThree lines."


def test_words_are_the_tokens_where_they_are_asked_for(tmp_path):
    (tmp_path / "input.txt").write_text(PLAY)
    made = load_roles(tmp_path, "words", length=4, least=10, most=3)
    assert made.vocabulary.tokens[2:] == (".", "lines", "four")
    assert made.train.x.tolist()[0] == [1, 1, 2, 1]


def test_a_folder_without_the_text_or_a_text_without_roles_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"there is no Shakespeare in .*fetch shakespeare"):
        load_roles(tmp_path)
    (tmp_path / "input.txt").write_text(PLAY)
    with pytest.raises(ConfigError, match="has 2 roles, none of which says 1,000 characters"):
        load_roles(tmp_path)
    (tmp_path / "input.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="is no text in UTF-8"):
        load_roles(tmp_path)


def test_the_real_text_has_141_roles_of_1000_characters():
    folder = real_data("text")
    assert len(read_roles((folder / "tinyshakespeare.txt").read_text())) == 309
    made = load_roles(folder)
    assert 130 <= len(made.users) <= 150
    assert len(made.vocabulary) == 2 + 64  # of 65 characters, as nobody of those says &
    sizes = np.bincount(made.test.user) / np.bincount(made.train.user)
    assert 0.15 < np.median(sizes) < 0.4
