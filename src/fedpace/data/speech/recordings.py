"""Folders of recordings, by layout.

Speech Commands (Warden 2018): `word/speaker_nohash_n.wav`, with `testing_list.txt` and
`validation_list.txt`, whose speakers are nowhere else. Spoken digits (Jackson's Free Spoken Digit
Dataset): `recordings/digit_speaker_n.wav`, unpacked or in its archive; its authors test on the first
five recordings of each digit and speaker.
"""

import re
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError
from fedpace.data.compressed import read_raw, unreadable
from fedpace.data.dataset import Labels
from fedpace.data.speech.wav import Sound, fit_length, read_wav, resample

DIGITS_ARCHIVE = "free-spoken-digit-dataset.tar.xz"
TESTING, VALIDATION = "testing_list.txt", "validation_list.txt"
TESTED_DIGITS = 5
_COMMAND = re.compile(r"(?P<word>[^/_][^/]*)/(?P<speaker>[^/]+)_nohash_\d+\.wav")
_DIGIT = re.compile(r"(?:.*/)?(?P<word>\d)_(?P<speaker>[^/]+)_(?P<number>\d+)\.wav")
_LARGEST = 100_000_000
"""Bytes of one recording in an archive; a forged size must not fill the memory."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One file. name: by which it is read; part: the set that it belongs to."""

    name: str
    word: str
    speaker: str
    part: Literal["train", "test"]


@dataclass(frozen=True, eq=False)
class SpeechSet:
    """Recordings of one part of a dataset, in a fixed order.

    words, speakers: names, of which `word` and `speaker` hold the places, one for each recording;
    read: a recording's file by its name.
    """

    recordings: tuple[Recording, ...]
    words: tuple[str, ...]
    speakers: tuple[str, ...]
    read: Callable[[str], bytes]

    def __len__(self) -> int:
        return len(self.recordings)

    @property
    def word(self) -> Labels:
        return _places([one.word for one in self.recordings], self.words)

    @property
    def speaker(self) -> Labels:
        return _places([one.speaker for one in self.recordings], self.speakers)

    def sounds(self, rate: int, length: int) -> Iterator[Sound]:
        """Every recording at `rate` samples a second, in `length` samples."""
        for one in self.recordings:
            sound, found = read_wav(self.read(one.name), one.name)
            yield fit_length(resample(sound, found, rate), length)

    def rate(self) -> int:
        """Samples a second of the first recording."""
        first = self.recordings[0].name
        return read_wav(self.read(first), first)[1]


def load_commands(
    folder: Path, tested: Literal["testing", "validation"] = "testing"
) -> tuple[SpeechSet, SpeechSet]:
    """Training and test recordings of a folder like Speech Commands'.

    tested: the list that is tested on. Neither list is trained on.
    """
    lists = {}
    for name in (TESTING, VALIDATION):
        if not (folder / name).is_file():
            raise ConfigError(
                f"{folder} has no {name}; expected the unpacked archive of Speech Commands with "
                f"WORD/SPEAKER_nohash_N.wav, {TESTING} and {VALIDATION}"
            )
        lists[name] = set(read_raw(folder / name).decode().split())
    test = lists[TESTING if tested == "testing" else VALIDATION]
    left_out = lists[TESTING] | lists[VALIDATION]
    found = []
    for path in folder.glob("*/*_nohash_*.wav"):
        name = path.relative_to(folder).as_posix()
        match = _COMMAND.fullmatch(name)
        if match and (name in test or name not in left_out):
            found.append(_recording(name, match, name in test))
    return _parts(found, partial(_read_file, folder), folder, "WORD/SPEAKER_nohash_N.wav")


def load_digits(folder: Path) -> tuple[SpeechSet, SpeechSet]:
    """Training and test recordings of spoken digits, unpacked or in their archive."""
    for inner in (folder / "recordings", folder):
        names = sorted(path.name for path in inner.glob("*.wav"))
        if names:
            return _digits(names, partial(_read_file, inner), inner)
    if not (folder / DIGITS_ARCHIVE).is_file():
        raise ConfigError(
            f"there are no spoken digits in {folder}; expected recordings/DIGIT_SPEAKER_N.wav or "
            f"{DIGITS_ARCHIVE}; run `fedpace data fetch spoken-digits`"
        )
    files = _unpacked(folder / DIGITS_ARCHIVE)
    return _digits(sorted(files), files.__getitem__, folder / DIGITS_ARCHIVE)


def _digits(
    names: Iterable[str], read: Callable[[str], bytes], where: Path
) -> tuple[SpeechSet, SpeechSet]:
    matches = [match for name in names if (match := _DIGIT.fullmatch(name))]
    found = [_recording(one.string, one, int(one["number"]) < TESTED_DIGITS) for one in matches]
    return _parts(found, read, where, "DIGIT_SPEAKER_N.wav, some of them with an N from 0 to 4")


def _read_file(folder: Path, name: str) -> bytes:
    return read_raw(folder / name)


def _unpacked(path: Path) -> Mapping[str, bytes]:
    """The WAV files of an archive; nothing is written to the disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".wav") and member.size <= _LARGEST:
                    content = archive.extractfile(member)
                    found[member.name] = b"" if content is None else content.read()
    except PermissionError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # lzma's own errors too, which a Python may lack
        raise ConfigError(
            f"{path} is a broken or cut off archive ({error}); put it there again"
        ) from error
    return found


def _recording(name: str, match: re.Match[str], test: bool) -> Recording:
    return Recording(name, match["word"], match["speaker"], "test" if test else "train")


def _parts(
    found: list[Recording], read: Callable[[str], bytes], where: Path, layout: str
) -> tuple[SpeechSet, SpeechSet]:
    found.sort(key=lambda one: (one.word, one.speaker, len(one.name), one.name))
    train, test = (tuple(one for one in found if one.part == part) for part in ("train", "test"))
    if not train or not test:
        raise ConfigError(
            f"{where} has {len(train)} recordings to train on and {len(test)} to test on; "
            f"expected some of each, named {layout}"
        )
    words = tuple(sorted({one.word for one in found}))
    unknown = {one.word for one in test} - {one.word for one in train}
    if unknown:
        raise ConfigError(
            f"{where} tests on {sorted(unknown)[0]!r}, of which there is nothing to train on; "
            "put all recordings of the dataset there"
        )
    made = []
    for part in (train, test):
        speakers = tuple(sorted({one.speaker for one in part}))
        made.append(SpeechSet(part, words, speakers, read))
    return made[0], made[1]


def _places(values: list[str], names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    place = {name: number for number, name in enumerate(names)}
    return np.array([place[value] for value in values], np.int64)
