import numpy as np

from fedpace.data.text.sequences import cut_rows, join_rows, split_tokens, text_set


def test_words_are_in_lower_case_with_marks_between_them():
    assert split_tokens("Is't a verdict?\nNo!", "words") == ["is't", "a", "verdict", "?", "no", "!"]
    assert list(split_tokens("No!", "characters")) == ["N", "o", "!"]


def test_every_token_but_the_first_is_predicted_once_and_the_end_is_padded():
    x, y = cut_rows(np.arange(10, 18, dtype=np.int32), 3)
    assert x.tolist() == [[10, 11, 12], [13, 14, 15], [16, 0, 0]]
    assert y.tolist() == [[11, 12, 13], [14, 15, 16], [17, 0, 0]]


def test_a_text_without_a_second_token_has_no_rows():
    for size in (0, 1):
        x, y = cut_rows(np.ones(size, np.int32), 4)
        assert x.shape == y.shape == (0, 4)


def test_rows_know_their_user():
    rows = join_rows(cut_rows(np.ones(size, np.int32), 2) for size in (4, 1, 3))
    assert rows.user.tolist() == [0, 0, 2]
    assert len(rows) == 3


def test_the_vocabulary_is_that_of_the_training_text():
    made = text_set({"a": ("abcab", "abd"), "b": ("bb", "z")}, 4, None)
    assert made.vocabulary.tokens[2:] == ("b", "a", "c")
    assert made.test.y.tolist() == [[2, 1, 0, 0]]
    assert made.test.user.tolist() == [0]
