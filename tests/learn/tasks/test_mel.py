"""Log-mel spectrograms."""

import math

import pytest
import torch

from fedpace.learn.tasks.mel import LogMel, mel_filters, to_mel


@pytest.mark.parametrize(
    ("hertz", "mel"), [(0, 0), (700, 781.17), (1000, 999.99), (4000, 2146.06), (8000, 2840.02)]
)
def test_the_mel_scale_has_its_known_values(hertz, mel):
    assert to_mel(hertz) == pytest.approx(mel, abs=0.01)


def test_a_band_is_a_triangle_between_the_centres_of_its_neighbours():
    """4 bands up to 4 kHz: centres a fifth of 2146.06 mel apart, by hand."""
    filters = mel_filters(4, 8000, 8000)  # a bin a hertz
    assert filters.shape == (4001, 4)
    assert filters.argmax(0).tolist() == pytest.approx([324.5, 799.4, 1494.5, 2511.8], abs=0.7)
    assert filters.amax(0).tolist() == pytest.approx([1] * 4, abs=2e-3)
    for band, (low, high) in enumerate([(0, 799), (324, 1494), (799, 2511), (1494, 4000)]):
        inside = filters[:, band].nonzero().flatten()
        assert (inside.min().item(), inside.max().item()) == (
            pytest.approx(low, abs=1.1),
            pytest.approx(high, abs=1.1),
        )
    assert filters[561, 0].item() == pytest.approx((799.4 - 561) / (799.4 - 324.5), abs=2e-3)


def test_between_two_centres_the_two_bands_share_a_frequency():
    filters = mel_filters(40, 4096, 16000)
    first, last = filters[:, 0].argmax() + 1, filters[:, -1].argmax()
    assert torch.allclose(filters[first:last].sum(1), torch.ones(last - first), atol=1e-5)


@pytest.mark.parametrize(("rate", "bands"), [(8000, 128), (16000, 128), (16000, 32)])
def test_every_band_hears_something(rate, bands):
    features = LogMel(rate, bands, rate // 40, rate // 100)
    points = features.points()
    assert points >= rate // 40
    assert (mel_filters(bands, points, rate).sum(0) > 0).all()


def test_a_tone_is_loudest_in_the_band_around_its_pitch():
    features = LogMel(8000, 32, 200, 80)
    time = torch.arange(8000) / 8000
    for hertz in (300, 1000, 2500):
        made = features(torch.sin(2 * math.pi * hertz * time)[None])
        assert made.shape == (1, 32, features.frames(8000)) == (1, 32, 101)
        centre = (1 + torch.arange(32)) * to_mel(4000) / 33
        nearest = (centre - to_mel(hertz)).abs().argmin()
        assert made[0, :, 50].argmax() == nearest


def test_the_energy_of_a_tone_is_what_the_window_lets_through():
    """Before logarithm and scaling: |FFT| of a sine in a Hann window is amplitude x sum / 2."""
    features = LogMel(8000, 4, 512, 8000)
    time = torch.arange(8192, dtype=torch.float32) / 8000
    hertz = 64 * 8000 / 512
    sound = 0.5 * torch.sin(2 * math.pi * hertz * time)
    spectrum = torch.stft(
        sound, 512, 4096, window=torch.hann_window(512), center=True, return_complex=True
    )
    assert spectrum.abs()[64, 1].item() == pytest.approx(0.5 * 256 / 2, rel=1e-3)
    assert features.points() == 512


def test_loudness_does_not_tell_and_silence_is_finite():
    features = LogMel(8000, 16, 200, 80)
    sound = torch.randn(1, 4000, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(features(sound), features(7 * sound), atol=1e-3, rtol=1e-3)
    made = features(sound)
    assert made.mean().item() == pytest.approx(0, abs=1e-5)
    assert made.std(correction=0).item() == pytest.approx(1, abs=1e-4)
    assert features(torch.zeros(2, 4000)).abs().max() == 0


def test_a_recording_s_spectrogram_does_not_depend_on_its_neighbours():
    features = LogMel(8000, 16, 200, 80)
    sounds = torch.randn(5, 3000, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(features(sounds)[2], features(sounds[2:3])[0])
