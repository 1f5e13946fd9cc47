"""Words from a folder of WAV files, a client for each speaker: TimelyFL's light GRU model.

    python examples/speech.py [FOLDER]

FOLDER is laid out as Speech Commands is: WORD/SPEAKER_nohash_N.wav, with testing_list.txt and
validation_list.txt. Without one, whistles that rise, fall, or stay low or high stand for words.
"""

import sys
import tempfile
import wave
from pathlib import Path

import numpy as np

import fedpace

RATE = 8000
time_s = np.arange(RATE // 2) / RATE
words = {
    "up": 1 + 3 * time_s,
    "down": 2.5 - 3 * time_s,
    "low": np.ones_like(time_s),
    "high": np.full_like(time_s, 2.5),
}
"""Pitch over time, relative to a speaker's own."""


def whistle(folder: Path, takes: int = 8) -> None:
    """Six speakers of different pitch; erin is in the validation list and finn in the testing list."""
    pitches = {"ann": 500, "bob": 560, "cyd": 740, "dan": 800, "erin": 620, "finn": 680}
    draw = np.random.default_rng(0)
    lists = {"erin": "validation_list.txt", "finn": "testing_list.txt"}
    for name in lists.values():
        (folder / name).touch()
    for speaker, own in pitches.items():
        for word, pitch in words.items():
            (folder / word).mkdir(exist_ok=True)
            for take in range(takes):
                hertz = own * pitch * draw.uniform(0.9, 1.1)
                sound = np.sin(2 * np.pi * np.cumsum(hertz) / RATE) + draw.normal(0, 0.1, len(pitch))
                name = f"{word}/{speaker}_nohash_{take}.wav"
                with wave.open(str(folder / name), "wb") as file:
                    file.setparams((1, 2, RATE, 0, "NONE", ""))
                    file.writeframes((8000 * sound).astype("<i2").tobytes())
                if speaker in lists:
                    with (folder / lists[speaker]).open("a") as held_out:
                        held_out.write(f"{name}\n")


def main(folder: Path, rounds: int) -> None:
    task = {"kind": "speech-commands", "folder": str(folder), "model": "gru", "seconds": 0.5}
    train = {"lr": 0.1, "batch_size": 8, "epochs": 3}
    config = {"task": task | {"hop_s": 0.02}, "train": train, "stop": {"rounds": rounds}}
    policies = {"timelyfl": {"k": 3}, "sync": {}}
    for policy in policies:
        result = fedpace.simulate(config | {"policies": policies}, policy=policy)
        clients, best = len(result.participation), result.summary.best_accuracy
        minutes = result.summary.end_s / 60
        print(f"{policy:9} {clients} speakers, best {best:.0%} in {minutes:.0f} virtual minutes")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).absolute(), 200)
    else:
        with tempfile.TemporaryDirectory() as scratch:
            whistle(Path(scratch))
            main(Path(scratch), 4)
