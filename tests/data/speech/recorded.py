"""Folders of small recordings for tests: every word is a tone of its own pitch."""

import io
import math
import wave
from pathlib import Path

import numpy as np


def tone(hertz: float, rate: int = 8000, seconds: float = 0.25) -> np.ndarray:
    return 0.5 * np.sin(2 * math.pi * hertz * np.arange(int(rate * seconds)) / rate)


def wav_bytes(sound: np.ndarray, rate: int = 8000, width: int = 2) -> bytes:
    """A WAV file; sound: (samples,) or (samples, channels) between -1 and 1."""
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setnchannels(1 if sound.ndim == 1 else sound.shape[1])
        file.setsampwidth(width)
        file.setframerate(rate)
        whole = np.rint(sound * (2 ** (8 * width - 1) - 1)).astype("<i8")
        if width == 1:
            whole += 128
        file.writeframes(whole.reshape(-1, 1).view(np.uint8)[:, :width].tobytes())
    return buffer.getvalue()


def write_digits(folder: Path, digits: int = 3, speakers: int = 2, each: int = 8) -> None:
    """Spoken digits' layout; speakers differ in pitch a little."""
    folder.mkdir(parents=True, exist_ok=True)
    for digit in range(digits):
        for speaker in range(speakers):
            for number in range(each):
                hertz = 300 * 2**digit * (1 + 0.02 * number) * (1 + 0.1 * speaker)
                path = folder / f"{digit}_speaker{speaker}_{number}.wav"
                path.write_bytes(wav_bytes(tone(hertz)))


def write_commands(folder: Path, words: tuple[str, ...] = ("no", "up", "yes")) -> None:
    """Speech Commands' layout: of four speakers c is in the validation and d in the testing list."""
    for number, word in enumerate(words):
        (folder / word).mkdir(parents=True)
        for speaker in "abcd":
            for take in range(2):
                hertz = 400 * 2**number * (1 + 0.05 * take)
                name = folder / word / f"{speaker}_nohash_{take}.wav"
                name.write_bytes(wav_bytes(tone(hertz, 16000), 16000))
    for speaker, name in (("c", "validation_list.txt"), ("d", "testing_list.txt")):
        lines = [f"{word}/{speaker}_nohash_{take}.wav" for word in words for take in range(2)]
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "_background_noise_").mkdir()
    (folder / "_background_noise_/hum.wav").write_bytes(wav_bytes(tone(50, 16000), 16000))
