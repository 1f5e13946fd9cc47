"""Log-mel spectrograms of sounds, by torch.stft.

A band is a triangle on the mel scale, m = 2595 log10(1 + f / 700) (O'Shaughnessy): it rises from the
centre of the band below to 1 at its own and falls to the centre of the band above. The bands' centres
divide the scale from 0 to half the rate evenly. A spectrogram is the logarithm of the energies, brought
to mean 0 and deviation 1 for each recording, so that loudness does not tell and no client has to know
of the others' sounds.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

FLOOR = 1e-6
"""Energy added to every band: silence has a logarithm, too."""


def to_mel(hertz: float) -> float:
    return 2595 * math.log10(1 + hertz / 700)


def mel_filters(bands: int, points: int, rate: int) -> Tensor:
    """Weights (points / 2 + 1, bands) of the frequencies of a spectrum of `points` samples."""
    hertz = torch.linspace(0, rate / 2, points // 2 + 1, dtype=torch.float64)
    mel = torch.linspace(0, to_mel(rate / 2), bands + 2, dtype=torch.float64)
    edges = 700 * (10 ** (mel / 2595) - 1)
    rising = (hertz[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - hertz[:, None]) / (edges[2:] - edges[1:-1])
    return torch.minimum(rising, falling).clamp(min=0).float()


@dataclass(frozen=True, slots=True)
class LogMel:
    """Sounds as spectrograms. window, hop: samples of a frame, and from one frame to the next."""

    rate: int
    bands: int
    window: int
    hop: int

    def points(self) -> int:
        """Samples of a spectrum: a power of two that gives every band a frequency of its own.

        The lowest bands lie a few hertz apart; a frame with zeros behind it has finer frequencies.
        """
        points = 1 << (self.window - 1).bit_length()
        while bool((mel_filters(self.bands, points, self.rate).amax(0) == 0).any()):
            points *= 2
        return points

    def frames(self, length: int) -> int:
        """Frames of a sound of `length` samples."""
        return 1 + length // self.hop

    def __call__(self, sounds: Tensor) -> Tensor:
        """Spectrograms (N, bands, frames) of sounds (N, samples)."""
        points = self.points()
        spectrum = torch.stft(
            sounds,
            points,
            self.hop,
            self.window,
            torch.hann_window(self.window),
            center=True,
            pad_mode="constant",
            return_complex=True,
        )
        energy = spectrum.real.square() + spectrum.imag.square()
        filters = mel_filters(self.bands, points, self.rate)
        logs = torch.log(torch.einsum("nft,fb->nbt", energy, filters) + FLOOR)
        middle = logs.mean((1, 2), keepdim=True)
        spread = logs.std((1, 2), correction=0, keepdim=True)
        return (logs - middle) / spread.clamp(min=FLOOR)
