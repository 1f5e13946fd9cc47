"""Names of clients."""

import re

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


def is_name(text: str) -> bool:
    """True for 1 to 64 letters, digits, dots, dashes and underscores that begin with no dot."""
    return _NAME.fullmatch(text) is not None
