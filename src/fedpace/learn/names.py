"""Errors for names that do not exist, with the nearest one that does."""

import difflib
from collections.abc import Iterable

from fedpace.core.errors import ConfigError


def unknown(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """The error for a `name` that is no `kind`; upper and lower case do not matter for nearness."""
    names = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.0)
    hint = f"did you mean {names[near[0]]!r}? " if near else ""
    return ConfigError(
        f"{kind} {name!r} does not exist; {hint}known: {', '.join(sorted(names.values()))}"
    )
