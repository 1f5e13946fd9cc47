"""Tasks of the next token."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.data.text.vocabulary import PAD, UNKNOWN
from fedpace.learn.tasks.text import known_accuracy
from fedpace.runs.config import plugin
from tests.data.text.leaf_files import TEXT, write_characters, write_comments
from tests.shared_data import real_data

SMALL = {"embedding": 8, "hidden": 64}


def made(kind, **settings):
    built, chosen = plugin("tasks", {"kind": kind, **settings}, "task")
    return built.build(chosen, 64)


@pytest.fixture
def play(tmp_path, monkeypatch):
    """A data root with a play of three roles that say the same."""
    monkeypatch.setattr("fedpace.learn.tasks.text.find_dataset_folder", lambda name, root: root / name)
    (tmp_path / "shakespeare").mkdir()
    lines = TEXT.replace(" the ", "\n")
    speeches = [f"{role}:\n{lines}\n{lines}" for role in ("KING", "QUEEN", "FOOL")]
    (tmp_path / "shakespeare/input.txt").write_text("\n\n".join(speeches))
    return str(tmp_path)


def test_a_role_is_a_client_and_answers_are_for_every_token(play):
    task = made("shakespeare", root=play, length=20, min_characters=10, **SMALL)
    assert len(task.clients) == len(task.client_tests) == 3
    inputs, targets = task.train
    assert inputs.shape == targets.shape
    assert inputs.shape[1] == 20
    assert not inputs.dtype.is_floating_point
    assert task.model()(inputs[:2]).shape[:2] == (2, 20)
    assert [info.name for info in task.metric_set.infos] == ["accuracy", "perplexity", "loss"]
    assert made("shakespeare", root=play, by="partition", min_characters=10).clients is None


@pytest.mark.parametrize(("model", "lr"), [("lstm", 2.0), ("albert", 0.3)])
def test_what_is_said_again_and_again_is_learned(play, model, lr):
    task = made("shakespeare", root=play, model=model, length=20, min_characters=10, **SMALL)
    config = {"policy": "sync", "train": {"lr": lr, "batch_size": 4}, "stop": {"rounds": 6}}
    result = fedpace.simulate(config, task=task)
    first, last = result.summary.loss[0][1], result.summary.loss[-1][1]
    assert last < 0.92 * first
    assert all(math.isfinite(value) for _, value in result.summary.loss)


def test_loss_accuracy_and_perplexity_leave_padding_out(tmp_path):
    write_comments(tmp_path)
    task = made("leaf", folder=str(tmp_path), min_tokens=1, **SMALL)
    inputs, targets = task.test
    assert (targets == PAD).any()
    with torch.no_grad():
        outputs = task.model().eval()(inputs)
    counted = targets != PAD
    expected = cross_entropy(outputs[counted], targets[counted])
    torch.testing.assert_close(task.loss(outputs, targets), expected)


def test_the_unknown_is_never_right():
    targets = torch.tensor([[2, UNKNOWN, PAD]])
    outputs = torch.nn.functional.one_hot(targets, 4).float()
    score = known_accuracy().score
    assert score(outputs, targets).tolist() == [[True, False, True]]
    assert known_accuracy().ignore == PAD


def test_users_of_both_layouts_of_leaf_are_clients(tmp_path):
    write_characters(tmp_path / "chars")
    write_comments(tmp_path / "words")
    chars = made("leaf", folder=str(tmp_path / "chars"), min_tokens=1, **SMALL)
    assert [len(share) for share in chars.clients] == [6, 7, 8]
    words = made("leaf", folder=str(tmp_path / "words"), min_tokens=1, model="albert", **SMALL)
    assert [len(share) for share in words.clients] == [4, 1]
    for task in (chars, words):
        result = fedpace.simulate({"policy": "sync", "stop": {"rounds": 2}}, task=task)
        assert result.summary.arrived == 2 * len(task.clients)


def test_partial_training_of_tied_weights_agrees_with_itself_in_a_run(tmp_path):
    """The shared block and the tied output are cut by policies as any layer is."""
    write_characters(tmp_path)
    task = made("leaf", folder=str(tmp_path), min_tokens=1, model="albert", predict="all", **SMALL)
    config = {"policy": "timelyfl", "stop": {"rounds": 3}, "policies": {"timelyfl": {"n": 3, "k": 1}}}
    result = fedpace.simulate(config, task=task)
    assert result.summary.arrived > 0
    assert np.isfinite([value for _, value in result.summary.loss]).all()


def test_a_text_without_anything_to_predict_is_refused(tmp_path, play):
    with pytest.raises(ConfigError, match=r"none of which says 9,999 characters"):
        made("shakespeare", root=play, min_characters=9999)
    with pytest.raises(ConfigError, match=r"there is no \.json file"):
        made("leaf", folder=str(tmp_path))


def test_missing_text_says_how_to_get_it(tmp_path):
    with pytest.raises(ConfigError, match=r"shakespeare is not in .*fedpace data fetch shakespeare"):
        made("shakespeare", root=str(tmp_path))


def test_the_real_roles_are_141_clients():
    task = made("shakespeare", root=str(real_data("text").parent))
    assert len(task.clients) == 141
    words = made("shakespeare", root=str(real_data("text").parent), tokens="words", vocabulary=5000)
    assert len(words.clients) == 141
    assert int(words.train[0].max()) < 5002
