"""Tasks of spoken words, from small recordings of tones."""

import numpy as np
import pytest
import torch

import fedpace
from fedpace.core.errors import ConfigError
from fedpace.learn.model.layers import Layout
from fedpace.runs.config import plugin
from tests.data.speech.recorded import write_commands, write_digits
from tests.shared_data import real_data

SHORT = {"seconds": 0.25, "bands": 16}


def made(kind, **settings):
    built, chosen = plugin("tasks", {"kind": kind, **settings}, "task")
    return built.build(chosen, 64)


@pytest.fixture
def digits(tmp_path):
    """A data root with three digits of two speakers."""
    write_digits(tmp_path / "spoken-digits")
    return tmp_path


@pytest.fixture
def whole(monkeypatch):
    """Take any recordings for the whole dataset: those here are not its 3,000."""
    monkeypatch.setattr(
        "fedpace.learn.tasks.speech.find_dataset_folder", lambda name, root: root / name
    )


def test_a_speaker_is_a_client_by_default(digits, whole):
    task = made("spoken-digits", root=str(digits), **SHORT)
    assert task.name == "spoken-digits"
    assert [len(share) for share in task.client_tests] == [15, 15]
    assert [len(share) for share in task.clients] == [9, 9]
    inputs, targets = task.train
    assert inputs.shape == (18, 1, 16, 26)
    assert targets.tolist() == [0] * 6 + [1] * 6 + [2] * 6
    assert len(task.test) == 30
    assert Layout.trace(task.model(), inputs[:2]).depth == 5


def test_words_can_be_divided_by_the_partition_instead(digits, whole):
    task = made("spoken-digits", root=str(digits), by="partition", **SHORT)
    assert task.clients is None
    config = {
        "clients": 4,
        "partition": {"alpha": 0.5, "min_samples": 2},
        "policy": "sync",
        "stop": {"rounds": 1},
    }
    assert fedpace.simulate(config, task=task).summary.arrived == 4


def test_tones_are_learned_in_a_few_rounds(digits, whole):
    task = made("spoken-digits", root=str(digits), **SHORT)
    config = {"policy": "sync", "train": {"lr": 0.1, "batch_size": 4}, "stop": {"rounds": 8}}
    assert fedpace.simulate(config, task=task).summary.best_accuracy > 0.9


def test_speech_commands_come_at_their_rate_with_the_paper_s_bands_for_the_gru(tmp_path):
    write_commands(tmp_path / "words")
    task = made("speech-commands", folder=str(tmp_path / "words"))
    assert task.train[0].shape == (12, 1, 128, 101)
    assert len(task.clients) == 2
    assert len(task.test) == 6
    assert task.client_tests is None  # nobody who is tested trains
    assert task.model()(task.test[0]).shape == (6, 4)
    halved = made("speech-commands", folder=str(tmp_path / "words"), rate=8000, tested="validation")
    assert halved.train[0].shape == (12, 1, 128, 101)


def test_models_for_images_see_32_bands_and_32_frames(tmp_path):
    write_commands(tmp_path / "words")
    task = made("speech-commands", folder=str(tmp_path / "words"), model="vgg11")
    assert task.train[0].shape == (12, 1, 32, 32)
    with torch.no_grad():
        assert task.model()(task.test[0]).shape == (6, 3)


def test_a_cache_holds_the_same_numbers_and_is_not_computed_again(tmp_path, monkeypatch):
    write_commands(tmp_path / "words")
    settings = {"folder": str(tmp_path / "words"), **SHORT}
    plain = made("speech-commands", **settings)
    first = made("speech-commands", cache=str(tmp_path / "cache"), **settings)
    assert len(list((tmp_path / "cache").iterdir())) == 2
    monkeypatch.delattr("fedpace.learn.tasks.speech._batches")
    again = made("speech-commands", cache=str(tmp_path / "cache"), **settings)
    for part in ("train", "test"):
        arrays = [np.asarray(getattr(one, part)[0]) for one in (plain, first, again)]
        assert all(np.array_equal(arrays[0], other) for other in arrays[1:])


def test_frames_that_no_recording_has_are_refused(tmp_path):
    write_commands(tmp_path / "words")
    for wrong in ({"hop_s": 3.0}, {"hop_s": 1e-6}):
        with pytest.raises(ConfigError, match=r"have no frame of .* set seconds to more, or hop_s"):
            made("speech-commands", folder=str(tmp_path / "words"), **wrong)
    with pytest.raises(ConfigError, match="seconds is -1"):
        made("speech-commands", folder=str(tmp_path / "words"), seconds=-1.0)
    with pytest.raises(ConfigError, match="did you mean 'vgg11'"):
        made("speech-commands", folder=str(tmp_path / "words"), model="vgg1")


def test_missing_digits_say_how_to_get_them(tmp_path):
    with pytest.raises(ConfigError, match=r"spoken-digits is not in .* and 2,994 more; run `fedpace"):
        made("spoken-digits", root=str(tmp_path))


def test_the_real_digits_are_six_clients_of_450(monkeypatch):
    task = made("spoken-digits", root=str(real_data("speech").parent), bands=32, hop_s=0.05)
    assert [len(share) for share in task.clients] == [450] * 6
    assert len(task.test) == 300
    assert task.train[0].abs().max() < 20
