"""Folders in the layouts of LEAF and Speech Commands, made of data that may be passed on."""

import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fedpace.data.downloads.root import find_dataset_folder
from fedpace.data.speech.recordings import TESTING, VALIDATION, load_digits
from fedpace.data.text.roles import FILES, read_roles
from fedpace.data.text.sequences import split_tokens

RATE = 16_000
LEAST, TEST_SHARE = 1000, 0.2
LENGTH, STEP, WORDS = 80, 40, 10


def make_folder(kind: str, folder: Path) -> Path:
    """Fill a folder, and say where a task is to look."""
    if kind == "idx":
        return find_dataset_folder("mnist", None)
    {"commands": _commands, "characters": _characters, "comments": _comments}[kind](folder)
    return folder


def _commands(folder: Path) -> None:
    """Speech Commands' layout: the last speaker is tested on, the one before is the validation's."""
    train, test = load_digits(find_dataset_folder("spoken-digits", None))
    *_, validated, tested = train.speakers
    lists: dict[str, list[str]] = {VALIDATION: [], TESTING: []}
    for part in (train, test):
        for one, sound in zip(part.recordings, part.sounds(RATE, RATE), strict=True):
            number = one.name.rpartition("_")[2]
            name = f"{one.word}/{one.speaker}_nohash_{number}"
            (folder / one.word).mkdir(exist_ok=True)
            with wave.open(str(folder / name), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(RATE)
                file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())
            if one.speaker in (validated, tested):
                lists[TESTING if one.speaker == tested else VALIDATION].append(name)
    for path, names in lists.items():
        (folder / path).write_text("\n".join(names) + "\n")


def _roles() -> dict[str, tuple[str, str]]:
    """Training and test text of each role."""
    source = find_dataset_folder("shakespeare", None)
    path = next(source / name for name in FILES if (source / name).is_file())
    texts = {}
    for role, lines in read_roles(path.read_text()).items():
        if sum(map(len, lines)) >= LEAST:
            cut = int((1 - TEST_SHARE) * len(lines))
            texts[role] = ("\n".join(lines[:cut]), "\n".join(lines[cut:]))
    return texts


def _characters(folder: Path) -> None:
    def samples(text: str) -> dict[str, list[Any]]:
        starts = range(0, len(text) - LENGTH, STEP)
        return {"x": [text[s : s + LENGTH] for s in starts], "y": [text[s + LENGTH] for s in starts]}

    _write(folder, samples)


def _comments(folder: Path) -> None:
    """A line of a role is a comment."""

    def samples(text: str) -> dict[str, list[Any]]:
        made: dict[str, list[Any]] = {"x": [], "y": []}
        for line in text.split("\n"):
            said = ["<BOS>", *split_tokens(line, "words"), "<EOS>"]
            xs, ys = said[:-1], said[1:]
            pad = ["<PAD>"] * (-len(xs) % WORDS)
            counts = [1] * len(xs) + [0] * len(pad)
            made["x"].append(_pieces(xs + pad))
            made["y"].append({"target_tokens": _pieces(ys + pad), "count_tokens": _pieces(counts)})
        return made

    _write(folder, samples)


def _pieces(values: list[Any]) -> list[list[Any]]:
    return [values[start : start + WORDS] for start in range(0, len(values), WORDS)]


def _write(folder: Path, samples: Callable[[str], dict[str, list[Any]]]) -> None:
    texts = _roles()
    for number, part in enumerate(("train", "test")):
        (folder / part).mkdir()
        data = {role: samples(text[number]) for role, text in texts.items()}
        data = {role: own for role, own in data.items() if own["x"]}
        content = {
            "users": list(data),
            "num_samples": [len(own["x"]) for own in data.values()],
            "user_data": data,
        }
        (folder / part / "all_data.json").write_text(json.dumps(content))
