"""Stopping at any moment and going on as if nothing had happened.

A snapshot holds the run's tensors and the number of journal lines that led to them. Everything else
is retraced: virtual time is deterministic, so the same world and policy are run again without
learning until they have written those lines, and every line is compared with the old journal.
"""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from fedpace.core import codec
from fedpace.core.codec import Message
from fedpace.core.errors import JournalError
from fedpace.core.journal import Header, Journal, part_path
from fedpace.core.run import Standing
from fedpace.learn import files
from fedpace.learn.server.model_server import ModelServer


class Snapshots:
    """Saves the run every so many seconds of real time; used as a watch."""

    def __init__(
        self,
        path: Path,
        journal: "Journal | ResumedJournal",
        learner: ModelServer,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._journal = journal
        self._learner = learner
        self._every_s = every_s
        self._clock = clock
        self._last = clock()

    def __call__(self, standing: Standing) -> None:
        if self._learner.retracing or not standing.settled:
            return
        if self._clock() - self._last < self._every_s:
            return
        self._journal.sync()
        files.save(self._path, {"lines": self._journal.lines, "state": self._learner.state()})
        self._last = self._clock()


class ResumedJournal:
    """A journal whose first lines are there already: they are compared, the others written.

    It also recalls what the earlier run measured, since retracing cannot measure again.
    """

    def __init__(self, path: Path, header: Header, lines: int) -> None:
        self._journal = Journal.resume(path, lines)
        self._lines_there = lines
        self._retraced = 0
        self._old = part_path(path).open("rb")
        self._evaluated = _values(part_path(path), '{"fact":"evaluated"')
        self._measured = _values(part_path(path), '{"event":"measured"')
        try:
            self._compare(codec.encode(header))
        except JournalError:
            self.close(complete=False)
            raise

    @property
    def lines(self) -> int:
        return self._retraced if self.retracing else self._journal.lines

    @property
    def retracing(self) -> bool:
        return self._retraced < self._lines_there

    def write(self, message: Message) -> None:
        if self.retracing:
            self._compare(codec.encode(message))
        else:
            self._journal.write(message)

    def _compare(self, line: bytes) -> None:
        self._retraced += 1
        if self._old.readline() != line + b"\n":
            raise JournalError(
                f"{part_path(self._journal.path)}, line {self._retraced}: the run does not go as it "
                f"went; resume with the same config and version, or start over with --overwrite"
            )

    def evaluated(self) -> tuple[float, float | None]:
        record = next(self._evaluated)
        return record["accuracy"], record.get("loss")

    def measured(self) -> tuple[float | None, ...]:
        return tuple(next(self._measured)["values"])

    def sync(self) -> None:
        self._journal.sync()

    def close(self, complete: bool) -> None:
        self._old.close()
        self._journal.close(complete)


class Resume:
    """Gives the learner its tensors back once retracing has reached the snapshot; a watch."""

    def __init__(self, journal: ResumedJournal, learner: ModelServer, state: dict[str, Any]) -> None:
        self._journal = journal
        self._learner = learner
        self._state: dict[str, Any] | None = state

    def __call__(self, standing: Standing) -> None:
        if self._state is not None and not self._journal.retracing:
            self._learner.load(self._state)
            self._state = None


def _values(path: Path, start: str) -> Iterator[dict[str, Any]]:
    file: TextIO
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.startswith(start):
                yield json.loads(line)
