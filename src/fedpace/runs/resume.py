"""Stopping at any moment and going on as if nothing had happened, for both clocks.

A snapshot holds the run's tensors and the number of journal lines that led to them. Everything else is
retraced: what a fresh session writes is compared with the lines that are there, and nothing is learned
until it is where the snapshot is. Virtual time is deterministic, so its world is simply run again; the
real world is fed the journal's events, and what came after the snapshot is learned again from updates
on disk. Of the last event, commands may be missing from a journal: they are given out now.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from fedpace.core import codec
from fedpace.core.codec import Message
from fedpace.core.commands import Command, Evaluate, Measure
from fedpace.core.errors import Diverged, FedpaceError, JournalError, PeerError, PolicyError
from fedpace.core.events import Event, Measured
from fedpace.core.facts import ClientsEvaluated, Evaluated, Spent
from fedpace.core.journal import Journal, part_path, read
from fedpace.core.run import Standing
from fedpace.core.session import Session
from fedpace.learn.server.model_server import ModelServer
from fedpace.remote.spool import Spool
from fedpace.remote.world import RemoteWorld
from fedpace.runs.disk.changes import CHANGED, Difference
from fedpace.runs.disk.generations import KEPT, SnapshotFiles

log = logging.getLogger("fedpace.server")

T = TypeVar("T")
_SPENT, _CLOSED, _FINISHED = b'{"fact":"spent"', b'{"fact":"closed"', b'{"fact":"finished"'


@dataclass(frozen=True)
class Snapshot:
    """The tensors of a run. lines: of its journal that led to them."""

    lines: int
    state: dict[str, Any]

    @classmethod
    def find(cls, path: Path) -> "Snapshot | None":
        """The newest one that is whole; JournalError where all are damaged, or of another version."""
        values = SnapshotFiles(path).load()
        if values is None:
            return None
        with _refused_unless_fitting(path):
            return cls(**values)


@contextmanager
def _refused_unless_fitting(path: Path) -> Iterator[None]:
    """Around what reads a snapshot's values: JournalError where they are not such as are saved now.

    RuntimeErrors of a kind of their own, as torch has for a GPU without memory, say nothing of those.
    """
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and type(error) is not RuntimeError:
            raise
        raise JournalError(
            f"{path}: the snapshot is of another version ({error!r}); resume with the version that "
            "wrote it, or start over with overwrite=True"
        ) from error


class RetracedJournal(Journal):
    """A journal that is gone on with: what is written is compared with its lines, then added to them.

    It also recalls what the earlier run measured, since retracing cannot measure again.
    """

    def __init__(
        self, path: Path, lines: int, snapshot: Snapshot | None, patient: bool = False
    ) -> None:
        self._go_on(path, lines if snapshot is None else max(lines, snapshot.lines), patient)
        self._snapshot, self._there, self.retraced = snapshot, lines, 1
        self._changes: Sequence[Difference] = ()
        self._part = part_path(path)
        self._old = self._part.open("rb")
        self._old.readline()
        self._evaluated = (one for one in read(self._part)[1] if isinstance(one, Evaluated))
        found = (one for one in read(self._part)[1] if isinstance(one, ClientsEvaluated))
        self._clients_evaluated = found
        self._measured = (one for one in read(self._part)[1] if isinstance(one, Measured))

    def announce(self, changes: Sequence[Difference]) -> None:
        """Write down which settings have changed, before what comes after the lines that are there."""
        self._changes = changes

    def write(self, message: Message) -> None:
        if self.retraced == self._there:
            for change in self._changes:
                super().write(change.fact(0.0 if isinstance(message, Command) else message.at))
            self._changes = ()
            super().write(message)
        elif self._next() != codec.encode(message) + b"\n":
            raise self.differs(self.retraced)

    def _next(self) -> bytes:
        """The next line to compare with; that settings changed is not said again."""
        line = self.skip()
        while line.startswith(CHANGED):
            line = self.skip()
        return line

    def skip(self) -> bytes:
        """Pass over a line: it is compared, or of what retracing does not write again."""
        self.retraced += 1
        return self._old.readline()

    def messages(self) -> Iterator[tuple[int, Message]]:
        """The messages that are there, with the numbers of their lines."""
        return enumerate(islice(read(self._part)[1], self._there - 1), start=2)

    def differs(self, line: int) -> JournalError:
        return JournalError(
            f"{self._part}, line {line}: the run does not go as it went; resume with the same config "
            f"and version, or start over with overwrite=True"
        )

    def restore(self, models: ModelServer) -> None:
        """Let models learn nothing until the snapshot is reached, and load it there."""
        if self._snapshot is not None and self.retraced < self._snapshot.lines:
            models.retrace(self)
        elif self._snapshot is not None:
            with _refused_unless_fitting(self._part):
                models.load(self._snapshot.state)
            self._snapshot = None

    def evaluated(self) -> dict[str, float]:
        return self._recall(self._evaluated).metrics

    def clients_evaluated(self) -> tuple[float | None, ...]:
        return self._recall(self._clients_evaluated).values

    def measured(self) -> tuple[float | None, ...]:
        return tuple(self._recall(self._measured).values)

    def _recall(self, earlier: Iterator[T]) -> T:
        """The next of what was measured; JournalError where less was measured than is asked for now."""
        for one in earlier:
            return one
        raise self.differs(self.retraced)

    def close(self, complete: bool) -> None:
        self._old.close()
        super().close(complete)


def count_lines(part: Path) -> int:
    """Lines of an unfinished journal that count: whole ones, without its end, which is said again.

    An end is the tasks that were open, the cost of all, where anything costs, and why.
    """
    lines, counted, before = 0, 0, b""
    with part.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                continue
            lines += 1
            if line.startswith(_FINISHED):
                counted -= before.startswith(_SPENT) and counted == lines - 1
            elif not (line.startswith(_SPENT) and before.startswith(_CLOSED)):
                counted = counted if line.startswith(_CLOSED) else lines
            before = line
    return counted


@dataclass(frozen=True)
class Unfinished:
    """Steps that a journal leaves open. missing: commands to its last event; asked: questions.

    diverged: the run has come to its end, which the journal does not say yet.
    """

    missing: tuple[Command, ...] = ()
    asked: tuple[Measure | Evaluate, ...] = ()
    diverged: Diverged | None = None


def retrace(
    journal: RetracedJournal, session: Session, world: RemoteWorld, models: ModelServer
) -> Unfinished:
    """Bring session, real world and models to where the journal ends."""
    world.attach(session.books)
    given, asked, at = deque[Command](), dict[int, Measure | Evaluate](), 0.0
    for line, message in journal.messages():
        try:
            if isinstance(message, Event):
                journal.restore(models)
                world.retrace(message)
                given.extend(session.handle(message))
                if isinstance(message, Measured):
                    asked.pop(message.request, None)
            elif not isinstance(message, Command | Spent):  # the run's own, or of what was ignored
                journal.restore(models)
                journal.skip()
                at = max(at, message.at)
                world.healer.retrace(message)
            elif line > journal.retraced:
                raise journal.differs(line)
            elif isinstance(message, Command):
                world.apply(given.popleft())
                if isinstance(message, Measure | Evaluate):
                    asked[message.request] = message
        except Diverged as error:
            return Unfinished(diverged=error)
        except (PeerError, PolicyError, OSError) as error:
            raise JournalError(
                f"{part_path(journal.path)}, line {line}: what was done there cannot be done again: "
                f"{error}; if files beside it were deleted, put them back"
            ) from error
    journal.restore(models)
    world.resume(max(session.books.now, at))
    return Unfinished(tuple(given), tuple(asked.values()))


class Snapshots:
    """Saves the models every so many seconds of real time; a watch.

    A simulated run is also saved at its end, before the lines that say so: it can be extended.

    spool: of a served run; an update stays there until the oldest snapshot that is kept holds what
    became of it. Snapshots are then written beside the run, early where used updates fill the spool,
    the journal is brought to disk every round, and a full disk is told and tried again. sync: brings
    the journal to disk.
    """

    def __init__(
        self,
        path: Path,
        journal: Journal,
        models: ModelServer,
        every_s: float,
        spool: Spool | None = None,
        sync: Callable[[], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files, self._journal, self._models = SnapshotFiles(path), journal, models
        self._used: deque[set[int]] = deque(maxlen=KEPT)
        """Tasks whose updates the snapshots hold, of each generation since this process began."""
        self._every_s, self._clock, self._last = every_s, clock, clock()
        self._spool, self._failed = spool, False
        self._sync = sync or journal.sync
        self._round = 0
        self._thread: threading.Thread | None = None

    def __call__(self, standing: Standing) -> None:
        if self._models.retracing:
            return
        if self._spool is not None and standing.round != self._round:
            self._round = standing.round
            self._sync()
        due = self._clock() - self._last >= self._every_s or self._is_crowded()
        due = due or (standing.over and self._spool is None)
        if due and standing.settled and (self._thread is None or not self._thread.is_alive()):
            self.save(wait=False)

    def save(self, wait: bool = True) -> None:
        """Save what is now; wait: until it is on disk, where that is done beside the run.

        While a journal is retraced the snapshot that is there has more than there is now.
        """
        if self._models.retracing:
            return
        self.join()
        self._sync()
        self._last = self._clock()
        values = {"lines": self._journal.lines, "state": self._models.state()}
        if self._spool is None:
            self._files.save(values)
            self._last = self._clock()
            return
        used = self._spool.others(self._models.tasks)
        self._thread = threading.Thread(target=self._write, args=(values, self._spool, used))
        self._thread.start()
        if wait:
            self._thread.join()

    def join(self) -> None:
        """Wait for the one that is being written."""
        if self._thread is not None:
            self._thread.join()

    def _is_crowded(self) -> bool:
        """A snapshot would make room that will soon be needed, and the last one did not fail."""
        spool = self._spool
        crowded = spool is not None and spool.half_full and bool(spool.others(self._models.tasks))
        return crowded and not self._failed

    def _write(self, values: dict[str, Any], spool: Spool, used: set[int]) -> None:
        """Write a snapshot, and delete the updates that every snapshot holds."""
        self._failed = True
        try:
            self._files.save(values)
            self._used.append(used)
            for task in self._used[0] if len(self._used) == KEPT else ():
                spool.forget(task)
            self._failed = False
        except (FedpaceError, OSError) as error:
            log.error("%s; the run goes on, and the next snapshot will be tried in time", error)
