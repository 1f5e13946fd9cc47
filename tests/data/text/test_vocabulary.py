import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.text.vocabulary import PAD, UNKNOWN, Vocabulary


def test_the_most_frequent_tokens_come_first_and_equal_ones_by_name():
    made = Vocabulary.count([["to", "be", "or"], ["not", "to", "be"]])
    assert made.tokens == ("<PAD>", "<UNK>", "be", "to", "not", "or")
    assert Vocabulary.count([["to", "be", "or"], ["not", "to", "be"]], 2).tokens[2:] == ("be", "to")


def test_what_is_not_known_is_told_as_such_and_special_names_mean_their_numbers():
    made = Vocabulary.count([["a", "<PAD>", "<PAD>", "b"]])
    assert made.encode(["b", "c", "<PAD>", "a"]).tolist() == [3, UNKNOWN, PAD, 2]
    assert made.decode([3, 1]) == ["b", "<UNK>"]


def test_a_string_is_encoded_as_its_characters_are():
    made = Vocabulary.count(["the quick brown fox", "über"])
    text = "thé queen of hearts \U0001f0cf über"
    assert np.array_equal(made.encode(text), made.encode(list(text)))
    assert made.encode(text)[2] == UNKNOWN


def test_a_string_of_words_unknown_as_characters_is_all_unknown():
    assert Vocabulary.count([["word", "other"]]).encode("abc").tolist() == [UNKNOWN] * 3


def test_no_text_is_refused():
    with pytest.raises(ConfigError, match="the training text is empty"):
        Vocabulary.count([[], ["<PAD>"]])
