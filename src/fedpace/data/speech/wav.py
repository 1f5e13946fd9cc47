"""WAV files as arrays: PCM of 8 to 32 bits, made mono, resampled and brought to one length."""

import io
import wave

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError

Sound = npt.NDArray[np.float32]
"""Samples of one channel between -1 and 1."""
MARGIN_S = 0.02
"""Silence on both sides of a sound that is resampled, so that its end does not run into its start."""


def read_wav(content: bytes, name: str) -> tuple[Sound, int]:
    """The sound in a WAV file and its samples a second; channels are averaged."""
    try:
        with wave.open(io.BytesIO(content)) as file:
            width, channels, rate = file.getsampwidth(), file.getnchannels(), file.getframerate()
            announced, raw = file.getnframes(), file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        reason = str(error) or "it ends within its header"
        raise ConfigError(
            f"{name} is no readable WAV file ({reason}); give PCM of 8 to 32 bits"
        ) from error
    if len(raw) != announced * width * channels or not raw:
        raise ConfigError(
            f"{name} holds {len(raw):,} bytes of sound, expected {announced * width * channels:,} by "
            "its header and at least one sample; fetch the file again or delete it"
        )
    return _samples(raw, width).reshape(-1, channels).mean(axis=1, dtype=np.float32), rate


def _samples(raw: bytes, width: int) -> Sound:
    if width == 1:  # the only width without a sign
        return (np.frombuffer(raw, np.uint8).astype(np.float32) - 128) / np.float32(128)
    if width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0].astype(np.float32) / np.float32(2**31)
    values = np.frombuffer(raw, "<i2" if width == 2 else "<i4")
    return values.astype(np.float32) / np.float32(2 ** (8 * width - 1))


def resample(sound: Sound, rate: int, wanted: int) -> Sound:
    """The sound with `wanted` instead of `rate` samples a second, by its Fourier series.

    What lies above half the lower rate is left out, so that nothing is mirrored.
    """
    if rate == wanted:
        return sound
    # A whole number of both samples, or the pitch would change.
    step = np.gcd(rate, wanted)
    unit, wanted_unit = rate // step, wanted // step
    margin = -(-int(MARGIN_S * rate) // unit)
    units = margin + -(-len(sound) // unit) + margin
    padded = np.zeros(units * unit)
    padded[margin * unit : margin * unit + len(sound)] = sound
    spectrum = np.fft.rfft(padded)
    size = units * wanted_unit
    kept = min(len(spectrum), size // 2 + 1)
    made = np.fft.irfft(spectrum[:kept], size) * (wanted / rate)
    start = margin * wanted_unit
    return made[start : start + max(round(len(sound) * wanted / rate), 1)].astype(np.float32)


def fit_length(sound: Sound, length: int) -> Sound:
    """The middle `length` samples; a shorter sound gets as much silence before it as behind it."""
    more = length - len(sound)
    if more <= 0:
        start = -more // 2
        return sound[start : start + length]
    return np.pad(sound, (more // 2, more - more // 2))
