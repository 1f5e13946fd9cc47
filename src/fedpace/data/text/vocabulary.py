"""Tokens as numbers, the most frequent ones first; two numbers are kept for padding and the unknown."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from fedpace.core.errors import ConfigError

PAD, UNKNOWN = 0, 1
SPECIAL = ("<PAD>", "<UNK>")
"""Names of the two numbers, as LEAF writes them; in a text they mean these numbers."""
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Vocabulary:
    """Known tokens. tokens: by number, beginning with the special ones."""

    tokens: tuple[str, ...]

    @classmethod
    def count(cls, texts: Iterable[Sequence[str]], most: int | None = None) -> "Vocabulary":
        """The `most` frequent tokens of texts (None: all of them); equally frequent ones by name."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(text)
        for name in SPECIAL:
            counts.pop(name, None)
        if not counts:
            raise ConfigError("the training text is empty; give texts of at least one token")
        ordered = sorted(counts, key=lambda token: (-counts[token], token))
        return cls(SPECIAL + tuple(ordered[:most]))

    def __len__(self) -> int:
        return len(self.tokens)

    def encode(self, tokens: Sequence[str]) -> Ids:
        """Numbers of tokens, or of the characters of a string."""
        if isinstance(tokens, str):
            return self._encode_characters(tokens)
        numbers = self._numbers
        return np.array([numbers.get(token, UNKNOWN) for token in tokens], np.int32)

    def decode(self, ids: Iterable[int]) -> list[str]:
        return [self.tokens[one] for one in ids]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    @cached_property
    def _characters(self) -> tuple[npt.NDArray[np.uint32], Ids]:
        """Code points of the tokens of one character, ascending, and their numbers."""
        single = sorted((ord(token), n) for token, n in self._numbers.items() if len(token) == 1)
        codes, numbers = zip(*single, strict=True) if single else ((0,), (UNKNOWN,))
        return np.array(codes, np.uint32), np.array(numbers, np.int32)

    def _encode_characters(self, text: str) -> Ids:
        codes, numbers = self._characters
        wanted = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        places = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
        return np.where(codes[places] == wanted, numbers[places], UNKNOWN).astype(np.int32)
