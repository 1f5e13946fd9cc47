"""Sequences of tokens of one length, for predicting what comes next."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedpace.core.errors import ConfigError
from fedpace.data.dataset import Labels
from fedpace.data.text.vocabulary import PAD, Ids, Vocabulary

Tokens = Literal["characters", "words"]
_WORD = re.compile(r"[\w']+|[^\w\s]")


@dataclass(frozen=True, slots=True, eq=False)
class TokenRows:
    """Sequences of several users. x: what is read, y: what comes next, both int32 (N, length).

    y is PAD where nothing is to be predicted; user: int64 (N,), whose sequence it is.
    """

    x: Ids
    y: Ids
    user: Labels

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, slots=True, eq=False)
class TextSet:
    """Training and test sequences. users: names, of which `TokenRows.user` holds the places."""

    train: TokenRows
    test: TokenRows
    users: tuple[str, ...]
    vocabulary: Vocabulary


def split_tokens(text: str, tokens: Tokens) -> Sequence[str]:
    """A text's characters, or its words in lower case with marks of punctuation between them."""
    return text if tokens == "characters" else _WORD.findall(text.lower())


def cut_rows(ids: Ids, length: int) -> tuple[Ids, Ids]:
    """(x, y) of a text, cut into rows that do not overlap; the last one is padded at its end."""
    rows = max(-(-(len(ids) - 1) // length), 0)
    x, y = np.full((2, rows * length), PAD, np.int32)
    x[: max(len(ids) - 1, 0)], y[: max(len(ids) - 1, 0)] = ids[:-1], ids[1:]
    return x.reshape(rows, length), y.reshape(rows, length)


def join_rows(rows: Iterable[tuple[Ids, Ids]]) -> TokenRows:
    """Rows of user 0, 1, ... in one piece."""
    pairs = list(rows)
    x, y = (np.concatenate(part) for part in zip(*pairs, strict=True))
    return TokenRows(x, y, np.repeat(np.arange(len(pairs)), [len(own) for own, _ in pairs]))


def text_set(
    texts: Mapping[str, tuple[Sequence[str], Sequence[str]]], length: int, most: int | None
) -> TextSet:
    """Sequences of users' (training, test) tokens; the vocabulary is that of the training tokens."""
    vocabulary = Vocabulary.count((train for train, _ in texts.values()), most)
    parts = [
        join_rows(cut_rows(vocabulary.encode(pair[part]), length) for pair in texts.values())
        for part in (0, 1)
    ]
    for name, part in zip(("train", "test"), parts, strict=True):
        if not len(part):
            raise ConfigError(f"no user has two tokens to {name} on; give longer texts")
    return TextSet(parts[0], parts[1], tuple(texts), vocabulary)
