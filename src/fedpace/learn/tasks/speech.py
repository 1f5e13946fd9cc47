"""Speech tasks: which word is spoken."""

import hashlib
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import torch

from fedpace.core.errors import Checked, ConfigError, Count, Positive, unknown
from fedpace.core.host import open_whole
from fedpace.data.downloads.root import find_dataset_folder
from fedpace.data.shares import Shares
from fedpace.data.speech.recordings import SpeechSet, load_commands, load_digits
from fedpace.data.speech.wav import Sound
from fedpace.learn.tasks.images import ROOT
from fedpace.learn.tasks.mel import LogMel
from fedpace.learn.tasks.models.speech import MODELS, build_speech_model
from fedpace.learn.tasks.task import Task

AT_ONCE = 256
"""Recordings whose spectrograms are computed in one go."""
WINDOW_S = 0.025
PAPER_BANDS, PAPER_HOP_S = 128, 0.01
IMAGE_SIDE = 32


@dataclass(frozen=True, slots=True)
class SpeechSettings(Checked):
    model: Annotated[str, f"{', '.join(MODELS[:-1])} or {MODELS[-1]}"] = "gru"
    by: Annotated[
        Literal["speaker", "partition"], "speaker: each is a client; partition: as [partition] says"
    ] = "speaker"
    seconds: Annotated[Positive, "of every recording: its middle, or with silence around it"] = 1.0
    rate: Annotated[Count | None, "samples a second; unset: the first recording's"] = None
    bands: Annotated[Count | None, "mel bands; unset: 128 for gru, else 32"] = None
    hop_s: Annotated[
        Positive | None, "from one frame to the next; unset: 0.01 for gru, else 32 frames in all"
    ] = None
    cache: Annotated[
        Path | None, "folder for spectrograms, which are then mapped and not read; unset: computed anew"
    ] = None


@dataclass(frozen=True, slots=True)
class SpokenDigitsSettings(SpeechSettings):
    root: Annotated[Path | None, ROOT] = None


class SpokenDigits:
    """Digits in 10 classes: 2,700 + 300 recordings of six speakers, from the data root."""

    Settings = SpokenDigitsSettings

    @staticmethod
    def build(settings: SpokenDigitsSettings, clients: int) -> Task:
        parts = load_digits(find_dataset_folder("spoken-digits", settings.root))
        return speech_task("spoken-digits", *parts, settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeechCommandsSettings(SpeechSettings):
    folder: Annotated[Path, "the unpacked archive: WORD/SPEAKER_nohash_N.wav and its two lists"]
    tested: Annotated[
        Literal["testing", "validation"], "the list that is tested on; neither is trained on"
    ] = "testing"


class SpeechCommands:
    """Spoken words from a folder like that of Google's Speech Commands: 35 words, 2,618 speakers."""

    Settings = SpeechCommandsSettings

    @staticmethod
    def build(settings: SpeechCommandsSettings, clients: int) -> Task:
        parts = load_commands(settings.folder, settings.tested)
        return speech_task("speech-commands", *parts, settings)


def speech_task(name: str, train: SpeechSet, test: SpeechSet, settings: SpeechSettings) -> Task:
    """A task from recordings: their spectrograms (1, bands, frames), and a model by name."""
    if settings.model not in MODELS:  # before minutes are spent on spectrograms
        raise unknown("model", settings.model, MODELS)
    rate = settings.rate or train.rate()
    length = round(settings.seconds * rate)
    features = _features(settings, rate, length)
    inputs = [_spectrograms(part, features, length, settings.cache) for part in (train, test)]
    side = (features.bands, features.frames(length))
    model = partial(build_speech_model, settings.model, len(train.words), side)
    pairs = (inputs[0], train.word), (inputs[1], test.word)
    if settings.by == "partition":
        return Task(model, *pairs, name=name)
    owners = [np.array([one.speaker for one in part.recordings]) for part in (train, test)]
    shares, own_tests = Shares.one_each(owners[0]), Shares.for_same(*owners)
    return Task(model, *pairs, shares, name=name, client_tests=own_tests)


def _features(settings: SpeechSettings, rate: int, length: int) -> LogMel:
    as_paper = settings.model == "gru"
    bands = settings.bands or (PAPER_BANDS if as_paper else IMAGE_SIDE)
    if settings.hop_s is not None:
        hop = round(settings.hop_s * rate)
    else:
        hop = round(PAPER_HOP_S * rate) if as_paper else length // (IMAGE_SIDE - 1)
    window = max(round(WINDOW_S * rate), hop)
    if not 1 <= hop <= length or window < 2:
        raise ConfigError(
            f"recordings of {length} samples have no frame of {hop} samples; set seconds to more, or "
            f"hop_s between {1 / rate:g} and {length / rate:g}"
        )
    return LogMel(rate, bands, window, hop)


def _spectrograms(part: SpeechSet, features: LogMel, length: int, cache: Path | None) -> np.ndarray:
    """Spectrograms (N, 1, bands, frames); with a cache they stay in its file and are mapped."""
    shape = (len(part), 1, features.bands, features.frames(length))
    if cache is None:
        made = np.empty(shape, np.float32)
        _fill(made, part, features, length)
        return made
    names = "\n".join(one.name for one in part.recordings)
    key = hashlib.sha256(f"{astuple(features)} {length}\n{names}".encode()).hexdigest()[:16]
    path = cache / f"spectrograms-{key}.npy"
    if not path.is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with open_whole(path) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_2_0(file, header)
            for batch in _batches(part, features, length):
                file.write(batch.tobytes())
    mapped: np.ndarray = np.load(path, mmap_mode="r")
    return mapped


def _fill(made: np.ndarray, part: SpeechSet, features: LogMel, length: int) -> None:
    done = 0
    for batch in _batches(part, features, length):
        made[done : done + len(batch), 0] = batch
        done += len(batch)


def _batches(part: SpeechSet, features: LogMel, length: int) -> Iterator[np.ndarray]:
    sounds: Iterator[Sound] = part.sounds(features.rate, length)
    while chunk := list(islice(sounds, AT_ONCE)):
        yield features(torch.from_numpy(np.stack(chunk))).numpy()
