import numpy as np
import pytest

from fedpace.core.errors import ConfigError
from fedpace.data.speech.wav import fit_length, read_wav, resample
from tests.data.speech.recorded import tone, wav_bytes


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_pcm_of_every_width_is_read_between_minus_one_and_one(width):
    sound = tone(440, seconds=0.02)
    found, rate = read_wav(wav_bytes(sound, 8000, width), "it")
    assert rate == 8000
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, sound, atol=1.5 * 2.0 ** (1 - 8 * width) + 1e-6)


def test_channels_are_averaged():
    sides = np.stack([np.full(10, 0.5), np.full(10, -0.25)], axis=1)
    np.testing.assert_allclose(read_wav(wav_bytes(sides), "it")[0], 0.125, atol=1e-4)


@pytest.mark.parametrize(
    "content",
    [b"", b"RIFF", b"words about a sound" * 9, wav_bytes(tone(440))[:-100], wav_bytes(tone(1)[:0])],
)
def test_a_file_that_is_no_whole_sound_is_refused_by_name(content):
    with pytest.raises(ConfigError, match=r"^yes/a_nohash_0\.wav .*(PCM|again)") as caught:
        read_wav(content, "yes/a_nohash_0.wav")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rate", "wanted"), [(16000, 8000), (8000, 16000), (44100, 16000), (8000, 11025)]
)
def test_resampling_keeps_pitch_loudness_and_length(rate, wanted):
    made = resample(tone(1000, rate).astype(np.float32), rate, wanted)
    expected = tone(1000, wanted)
    assert abs(len(made) - len(expected)) <= 1
    inside = slice(wanted // 50, -wanted // 50)  # the ends ring, as they begin and end at once
    both = min(len(made), len(expected))
    np.testing.assert_allclose(made[:both][inside], expected[:both][inside], atol=0.02)


def test_what_the_lower_rate_cannot_hold_is_left_out_and_not_mirrored():
    made = resample(tone(7000, 16000).astype(np.float32), 16000, 8000)
    assert np.abs(made[200:-200]).max() < 0.02


def test_the_same_rate_changes_nothing():
    sound = tone(440).astype(np.float32)
    assert resample(sound, 8000, 8000) is sound


def test_a_sound_keeps_its_middle_or_gets_silence_on_both_sides():
    sound = np.arange(1, 7, dtype=np.float32)
    assert fit_length(sound, 4).tolist() == [2, 3, 4, 5]
    assert fit_length(sound, 3).tolist() == [2, 3, 4]
    assert fit_length(sound, 6).tolist() == sound.tolist()
    assert fit_length(sound, 9).tolist() == [0, 1, 2, 3, 4, 5, 6, 0, 0]
