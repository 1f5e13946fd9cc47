"""Shakespeare's roles: who says what in the text of Karpathy's char-rnn ("Tiny Shakespeare").

A speech is a block between empty lines whose first line is the role's name and a colon.
"""

import math
from pathlib import Path

from fedpace.core.errors import ConfigError
from fedpace.data.compressed import read_raw
from fedpace.data.text.sequences import TextSet, Tokens, split_tokens, text_set

FILES = ("input.txt", "tinyshakespeare.txt")


def read_roles(text: str) -> dict[str, list[str]]:
    """Lines of each role, in the order of the text."""
    roles: dict[str, list[str]] = {}
    for block in text.split("\n\n"):
        head, _, speech = block.strip("\n").partition("\n")
        if head.endswith(":"):
            roles.setdefault(head[:-1], []).extend(speech.split("\n"))
    return roles


def load_roles(
    folder: Path,
    tokens: Tokens = "characters",
    length: int = 80,
    most: int | None = None,
    least: int = 1000,
    test_share: float = 0.2,
) -> TextSet:
    """Sequences of every role that says `least` characters or more.

    The last `test_share` of a role's lines are its test text; most: tokens of the vocabulary at most.
    """
    path = next((folder / name for name in FILES if (folder / name).is_file()), None)
    if path is None:
        raise ConfigError(
            f"there is no Shakespeare in {folder}; expected {' or '.join(FILES)}; run "
            "`fedpace data fetch shakespeare`"
        )
    try:
        roles = read_roles(read_raw(path).decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is no text in UTF-8 ({error}); fetch it again") from error
    texts = {}
    for role, lines in roles.items():
        if len(lines) >= 2 and sum(len(line) + 1 for line in lines) >= least:
            cut = min(max(len(lines) - math.ceil(test_share * len(lines)), 1), len(lines) - 1)
            parts = ("\n".join(part) + "\n" for part in (lines[:cut], lines[cut:]))
            train, test = (split_tokens(part, tokens) for part in parts)
            texts[role] = (train, test)
    if not texts:
        raise ConfigError(
            f"{path} has {len(roles)} roles, none of which says {least:,} characters in two lines or "
            "more; set min_characters lower, or give a text with roles (NAME:, then what is said)"
        )
    return text_set(texts, length, most)
