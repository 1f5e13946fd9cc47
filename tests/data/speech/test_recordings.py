import lzma
import tarfile

import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.speech.recordings import DIGITS_ARCHIVE, load_commands, load_digits
from tests.data.speech.recorded import write_commands, write_digits
from tests.shared_data import real_data


def names(part):
    return [one.name for one in part.recordings]


def test_the_lists_of_speech_commands_are_kept_from_training(tmp_path):
    write_commands(tmp_path)
    train, test = load_commands(tmp_path)
    assert train.words == test.words == ("no", "up", "yes")
    assert (train.speakers, test.speakers) == (("a", "b"), ("d",))
    assert (len(train), len(test)) == (12, 6)
    assert names(test)[0] == "no/d_nohash_0.wav"
    assert load_commands(tmp_path, "validation")[1].speakers == ("c",)
    assert load_commands(tmp_path, "validation")[0].speakers == ("a", "b")


def test_words_and_speakers_are_told_of_every_recording(tmp_path):
    write_commands(tmp_path)
    train, _ = load_commands(tmp_path)
    assert train.word.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert train.speaker.tolist() == [0, 0, 1, 1] * 3


@pytest.mark.parametrize("inner", ["recordings", ""])
def test_the_first_five_recordings_of_a_digit_and_speaker_are_the_test(tmp_path, inner):
    write_digits(tmp_path / inner)
    train, test = load_digits(tmp_path)
    assert (len(train), len(test)) == (3 * 2 * 3, 3 * 2 * 5)
    assert {one.name[-5] for one in test.recordings} == set("01234")
    assert train.words == ("0", "1", "2")
    assert train.speakers == ("speaker0", "speaker1")


def test_digits_are_read_from_their_archive_as_from_a_folder(tmp_path):
    write_digits(tmp_path / "plain/recordings")
    (tmp_path / "packed").mkdir()
    with tarfile.open(tmp_path / "packed" / DIGITS_ARCHIVE, "w:xz") as archive:
        archive.add(tmp_path / "plain/recordings", "recordings")
    for plain, packed in zip(
        load_digits(tmp_path / "plain"), load_digits(tmp_path / "packed"), strict=True
    ):
        assert [f"recordings/{name}" for name in names(plain)] == names(packed)
        pairs = zip(plain.sounds(8000, 2000), packed.sounds(8000, 2000), strict=True)
        assert all(np.array_equal(one, other) for one, other in pairs)


def test_sounds_come_at_the_rate_and_length_asked_for(tmp_path):
    write_commands(tmp_path)
    train, _ = load_commands(tmp_path)
    assert train.rate() == 16000
    sounds = np.stack(list(train.sounds(8000, 1000)))
    assert sounds.shape == (12, 1000)
    spectrum = np.abs(np.fft.rfft(sounds))
    assert spectrum.argmax(axis=1).tolist()[::4] == [50, 100, 200]  # 8 Hz a bin


def test_a_folder_of_something_else_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"has no testing_list.txt; expected the unpacked archive"):
        load_commands(tmp_path)
    with pytest.raises(ConfigError, match=r"there are no spoken digits in .*fetch spoken-digits"):
        load_digits(tmp_path)
    (tmp_path / "song.wav").touch()
    with pytest.raises(
        ConfigError, match=r"has 0 recordings to train on and 0 to test on; .*DIGIT_SPEAKER_N"
    ):
        load_digits(tmp_path)


def test_a_word_that_is_only_tested_is_refused(tmp_path):
    write_digits(tmp_path, digits=2)
    for path in tmp_path.glob("1_*_[567].wav"):
        path.unlink()
    with pytest.raises(ConfigError, match="tests on '1', of which there is nothing to train on"):
        load_digits(tmp_path)


@pytest.mark.parametrize("content", [b"no archive", lzma.compress(b"x" * 5000)[:-20]])
def test_a_broken_archive_is_refused_by_name(tmp_path, content):
    (tmp_path / DIGITS_ARCHIVE).write_bytes(content)
    with pytest.raises(ConfigError, match=r"tar\.xz is a broken or cut off archive"):
        load_digits(tmp_path)


def test_the_real_digits_are_six_speakers_with_fifty_of_each():
    train, test = load_digits(real_data("speech"))
    assert (len(train), len(test), train.rate()) == (2700, 300, 8000)
    assert train.speakers == ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
    assert np.bincount(train.word).tolist() == [270] * 10
    assert np.bincount(train.speaker).tolist() == [450] * 6
