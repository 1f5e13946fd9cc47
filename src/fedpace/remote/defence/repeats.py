"""A log that says the same thing about the same member once, and then only how often."""

import logging
from collections import Counter
from collections.abc import Hashable

_MOST_KINDS = 10_000


class RepeatLog:
    """Warnings by who and why: the 1st, 10th, 100th and so on are written, with their number.

    For one thread at a time; a lost count does no harm.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._counts: Counter[Hashable] = Counter()

    def warn(self, who: Hashable, why: Hashable, text: str, *args: object) -> None:
        """Write the line, or count it where it has been said before. why: the kind, not its numbers."""
        if len(self._counts) >= _MOST_KINDS:
            self._counts.clear()
        self._counts[who, why] += 1
        count = self._counts[who, why]
        if count == 1:
            self._log.warning(text, *args)
        elif str(count).rstrip("0") == "1":
            self._log.warning(text + " (%d times so far)", *args, count)
