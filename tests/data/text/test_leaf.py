import json

import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.text.leaf import load_leaf
from tests.data.text.leaf_files import (
    TEXT,
    characters,
    comments,
    write_characters,
    write_comments,
    write_part,
)


def test_strings_of_characters_predict_the_one_behind_them(tmp_path):
    write_characters(tmp_path)
    made = load_leaf(tmp_path)
    assert made.users == ("u0", "u1", "u2")
    assert made.train.x.shape == (6 + 7 + 8, 8)
    assert made.train.user.tolist() == [0] * 6 + [1] * 7 + [2] * 8
    assert "".join(made.vocabulary.decode(made.train.x[0])) == TEXT[:8]
    assert (made.train.y[:, :-1] == 0).all()
    assert made.vocabulary.decode(made.train.y[:3, -1]) == list(TEXT[8:11])


def test_every_character_can_be_predicted_too(tmp_path):
    write_characters(tmp_path)
    made = load_leaf(tmp_path, predict="all")
    assert "".join(made.vocabulary.decode(made.train.y[0])) == TEXT[1:9]


def test_comments_are_sequences_of_words_whose_padding_does_not_count(tmp_path):
    write_comments(tmp_path)
    made = load_leaf(tmp_path)
    assert made.users == ("ann", "bob", "cyd")
    shown = [made.vocabulary.decode(row) for row in made.train.x]
    assert shown[:2] == [["<BOS>", "to", "be", "or"], ["not", "to", "be", "<PAD>"]]
    assert made.vocabulary.decode(made.train.y[1]) == ["to", "be", "<EOS>", "<PAD>"]
    assert made.vocabulary.decode(made.test.y[0]) == ["to", "be", "<UNK>", "<EOS>"]
    assert made.test.user.tolist() == [0, 2]


def test_a_target_that_does_not_count_is_padding_whatever_it_is(tmp_path):
    data = comments("to be or")
    data["y"][0]["count_tokens"][0][1] = 0
    write_part(tmp_path, "train", {"ann": data})
    write_part(tmp_path, "test", {"ann": data})
    assert load_leaf(tmp_path).train.y[0].tolist()[1] == 0


def test_users_with_few_words_and_rare_words_are_left_out(tmp_path):
    write_comments(tmp_path)
    made = load_leaf(tmp_path, most=3, least=8)
    assert made.users == ("ann", "cyd")
    assert len(made.vocabulary) == 5
    assert set(made.train.user.tolist()) == {0}
    with pytest.raises(ConfigError, match="has 99 tokens; set min_tokens lower"):
        load_leaf(tmp_path, least=99)


def test_several_files_are_read_together(tmp_path):
    write_part(tmp_path, "train", {"a": characters(0, 3)}, "0.json")
    write_part(tmp_path, "train", {"b": characters(9, 3)}, "1.json")
    write_part(tmp_path, "test", {"b": characters(9, 1)})
    assert load_leaf(tmp_path).users == ("a", "b")
    write_part(tmp_path, "train", {"a": characters(9, 3)}, "2.json")
    with pytest.raises(ConfigError, match="user 'a' is in two files"):
        load_leaf(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "cannot be read"),
        ('{"users": ["a"]}', r"missing required field `user_data`"),
        ('{"users": ["a"], "user_data": {}}', "no x and y of equal length for user 'a'"),
        ('{"users": ["a"], "user_data": {"a": {"x": ["ab"], "y": []}}}', "of equal length"),
        ('{"users": ["a"], "user_data": {"a": {"x": [1], "y": [2]}}}', "has x of int"),
        ('{"users": ["a"], "user_data": {"a": {"x": ["ab"], "y": ["cd"]}}}', "one character"),
        ('{"users": ["a"], "user_data": {"a": {"x": [[["b"]]], "y": [["c"]]}}}', "target_tokens"),
        (
            '{"users": ["a"], "user_data": {"a": {"x": ["ab", "abc"], "y": ["c", "d"]}}}',
            "sequences of 2 to 3 tokens",
        ),
    ],
)
def test_a_file_of_another_form_is_refused_in_one_line(tmp_path, content, words):
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "all.json").write_text(content)
    with pytest.raises(ConfigError, match=words) as caught:
        load_leaf(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_without_train_and_test_is_refused(tmp_path):
    with pytest.raises(
        ConfigError, match=r"no .json file in .*train; name the folder that holds LEAF's"
    ):
        load_leaf(tmp_path)
    write_part(tmp_path, "train", {"a": characters(0, 2)})
    (tmp_path / "test").mkdir()
    (tmp_path / "test/x.json").write_text(json.dumps({"users": [], "user_data": {}}))
    with pytest.raises(ConfigError, match="has no sample; give some to test on"):
        load_leaf(tmp_path)
