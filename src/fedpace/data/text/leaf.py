"""LEAF's JSON layout (Caldas et al. 2018): folders train/ and test/ with files of

    {"users": [...], "num_samples": [...], "user_data": {user: {"x": [...], "y": [...]}}}

Shakespeare: an x is a string of 80 characters, its y the one that follows. Reddit: an x is a comment,
a list of sequences of words; its y has the words that follow (`target_tokens`, of the same form) and
which of them count (`count_tokens`, 0 or 1).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.data.compressed import read_raw
from fedpace.data.text.sequences import TextSet, TokenRows, join_rows
from fedpace.data.text.vocabulary import PAD, SPECIAL, Ids, Vocabulary

Samples = dict[str, list[Any]]
_FORM = "a file of LEAF has users, num_samples and user_data with x and y of each user"


class _LeafFile(msgspec.Struct):
    users: list[str]
    user_data: dict[str, Samples]
    num_samples: list[int] = []


@dataclass(frozen=True, slots=True)
class TokenPair:
    """One sequence and what follows each of its tokens; SPECIAL[0] where nothing is to be predicted."""

    x: Sequence[str]
    y: Sequence[str]


def load_leaf(
    folder: Path, most: int | None = None, least: int = 1, predict: Literal["all", "last"] = "last"
) -> TextSet:
    """Sequences of the users of train/ who have `least` tokens or more, and those of test/.

    Users of test/ who are not in train/ come behind the others. predict: of strings of characters,
    every next one, or only the one behind the string, as LEAF tests it. most: tokens of the vocabulary
    at most.
    """
    train, test = (_read_part(folder, part) for part in ("train", "test"))
    kinds = {type(data["x"][0]) for data in (*train.values(), *test.values()) if data["x"]}
    if not kinds <= {str} and not kinds <= {list}:
        found = ", ".join(sorted(kind.__name__ for kind in kinds))
        raise ConfigError(
            f"{folder} has x of {found}; give strings of characters (Shakespeare's layout) or "
            "lists of sequences of words (Reddit's)"
        )
    read = _characters if kinds == {str} else _words
    pairs = {user: read(user, data, predict) for user, data in train.items()}
    pairs = {user: own for user, own in pairs.items() if sum(len(one.x) for one in own) >= least}
    if not pairs:
        raise ConfigError(f"no user of {folder / 'train'} has {least} tokens; set min_tokens lower")
    tested = {user: read(user, data, predict) for user, data in test.items()}
    users = (*pairs, *(user for user in tested if user not in pairs))
    # Both, as the last token of a text is only ever a target.
    texts = (text for own in pairs.values() for one in own for text in (one.x, one.y))
    vocabulary = Vocabulary.count(texts, most)
    lengths = {len(one.x) for part in (pairs, tested) for own in part.values() for one in own}
    if len(lengths) != 1:
        raise ConfigError(
            f"{folder} has sequences of {min(lengths, default=0)} to {max(lengths, default=0)} tokens; "
            f"give all the same length, padded with {SPECIAL[0]}"
        )
    rows = [
        _rows([part.get(user, []) for user in users], vocabulary, max(lengths))
        for part in (pairs, tested)
    ]
    if not len(rows[1]):
        raise ConfigError(f"{folder / 'test'} has no sample; give some to test on")
    return TextSet(rows[0], rows[1], users, vocabulary)


def _read_part(folder: Path, part: str) -> dict[str, Samples]:
    paths = sorted((folder / part).glob("*.json"))
    if not paths:
        raise ConfigError(
            f"there is no .json file in {folder / part}; name the folder that holds LEAF's train/ and "
            "test/"
        )
    made: dict[str, Samples] = {}
    for path in paths:
        try:
            file = msgspec.json.decode(read_raw(path), type=_LeafFile)
        except msgspec.DecodeError as error:
            raise ConfigError(f"{path} cannot be read ({error}); {_FORM}") from error
        for user in file.users:
            data = file.user_data.get(user, {})
            if len(data.get("x", ())) != len(data.get("y", ())) or "x" not in data:
                raise ConfigError(f"{path} has no x and y of equal length for user {user!r}; {_FORM}")
            if user in made:
                raise ConfigError(f"user {user!r} is in two files of {folder / part}; put each in one")
            made[user] = data
    return made


def _characters(user: str, data: Samples, predict: str) -> list[TokenPair]:
    made = []
    for x, y in zip(data["x"], data["y"], strict=True):
        if not isinstance(x, str) or not isinstance(y, str) or len(y) != 1:
            raise ConfigError(
                f"user {user!r} has x {x!r:.40} with y {y!r:.40}; give a string and the one character "
                "that follows it"
            )
        made.append(TokenPair(x, x[1:] + y) if predict == "all" else TokenPair(x, y))
    return made


def _words(user: str, data: Samples, predict: str) -> list[TokenPair]:
    made = []
    for comment, truth in zip(data["x"], data["y"], strict=True):
        try:
            for x, y, counts in zip(
                comment, truth["target_tokens"], truth["count_tokens"], strict=True
            ):
                kept = (t if c else SPECIAL[0] for t, c in zip(y, counts, strict=True))
                made.append(TokenPair(x, list(kept)))
        except (TypeError, KeyError, ValueError) as error:
            raise ConfigError(
                f"user {user!r} has a comment that does not fit its target_tokens and count_tokens "
                f"({error}); give each sequence as many of both as it has words"
            ) from error
    return made


def _rows(users: list[list[TokenPair]], vocabulary: Vocabulary, length: int) -> TokenRows:
    return join_rows(_encode(own, vocabulary, length) for own in users)


def _encode(own: list[TokenPair], vocabulary: Vocabulary, length: int) -> tuple[Ids, Ids]:
    if own and isinstance(own[0].x, str):  # millions of characters are looked up in one go
        x = vocabulary.encode("".join(str(one.x) for one in own)).reshape(len(own), length)
        y = vocabulary.encode("".join(str(one.y) for one in own)).reshape(len(own), -1)
        # Of a prediction of the last token alone, the places before it count as padding.
        return x, np.pad(y, ((0, 0), (length - y.shape[1], 0)), constant_values=PAD)
    x, y = np.full((2, len(own), length), PAD, np.int32)
    for row, one in enumerate(own):
        x[row], y[row] = vocabulary.encode(one.x), vocabulary.encode(one.y)
    return x, y
