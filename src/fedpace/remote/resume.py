"""Going on after the server was killed: the journal is retraced, the models are made again.

A policy is fed the journal's events and must give its commands again. Models are those of the snapshot;
what was aggregated after it is aggregated again, from updates in the spool. Of the last event, commands
may be missing from the journal: they are given out now.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpace.core.codec import Message
from fedpace.core.commands import Command, Evaluate, Measure
from fedpace.core.errors import FedpaceError, JournalError, PeerError, PolicyError
from fedpace.core.events import Event, Measured
from fedpace.core.facts import Finished
from fedpace.core.journal import Journal, read
from fedpace.core.run import Standing
from fedpace.core.session import Session
from fedpace.learn import files
from fedpace.learn.server.model_server import ModelServer
from fedpace.remote.spool import Spool
from fedpace.remote.world import RemoteWorld

log = logging.getLogger("fedpace.server")


class Relay:
    """A recorder that keeps quiet until it is given a journal."""

    def __init__(self) -> None:
        self.journal: Journal | None = None

    def write(self, message: Message) -> None:
        if self.journal is not None:
            self.journal.write(message)


class _Unasked:
    """Answers to questions that nobody asks: the journal's events have them."""

    def evaluated(self) -> tuple[float, float | None]:
        raise JournalError("a journal that is retraced has asked for an evaluation")

    def measured(self) -> tuple[float | None, ...]:
        raise JournalError("a journal that is retraced has asked for a measurement")


@dataclass
class Retraced:
    """lines: of the journal that count; missing: commands to its last event that it does not have."""

    lines: int = 1
    missing: list[Command] = field(default_factory=list)
    asked: dict[int, Measure | Evaluate] = field(default_factory=dict)
    """Questions without an answer."""


def retrace(
    path: Path, session: Session, world: RemoteWorld, models: ModelServer, snapshot: Path
) -> Retraced:
    """Bring session, world and models to where the journal ends; a half-written line is cut off."""
    there = _cut_tail(path)
    saved = files.load(snapshot) if snapshot.exists() else None
    if saved is not None and saved["lines"] > there:
        raise JournalError(f"{path} has {there} lines, but its snapshot needs {saved['lines']}")
    if saved is not None:
        models.retrace(_Unasked())
    found, event, written = Retraced(), None, list[Command]()
    at_line, at = 1, 0.0

    def settle(last: bool) -> None:
        nonlocal saved
        if event is None:
            return
        if saved is not None and at_line > saved["lines"]:
            models.load(saved["state"])
            saved = None
        given = session.handle(event)
        if given[: len(written)] != written or (not last and len(given) != len(written)):
            raise JournalError(
                f"{path}, line {at_line}: the policy gave {given}, but the journal has {written}; "
                "resume with the same config and version"
            )
        try:
            world.keep_event(event)
            for command in written:
                world.keep_books(command)
        except (PeerError, PolicyError, OSError) as error:
            raise JournalError(
                f"{path}, line {at_line}: what was done there cannot be done again: {error}; if files "
                "beside it were deleted, put them back"
            ) from error
        for command in written:
            if isinstance(command, Measure | Evaluate):
                found.asked[command.request] = command
        found.missing = given[len(written) :]

    for number, message in enumerate(read(path)[1], start=2):
        if isinstance(message, Finished):
            break  # it will be said again
        found.lines = number
        if isinstance(message, Event):
            settle(last=False)
            event, at_line, written = message, number, []
            if isinstance(message, Measured):
                found.asked.pop(message.request, None)
        elif isinstance(message, Command):
            written.append(message)
        else:
            at = max(at, message.at)
    settle(last=True)
    if saved is not None:
        models.load(saved["state"])
    world.go_on(max(session.now, at))
    return found


def _cut_tail(path: Path) -> int:
    """Cut off a last line that was not written to its end; how many lines are left."""
    with path.open("r+b") as file:
        lines, end = 0, 0
        for line in file:
            if not line.endswith(b"\n"):
                break
            lines, end = lines + 1, end + len(line)
        file.truncate(end)
    return lines


class Snapshots:
    """Saves the models now and then, beside the run; a watch. A full disk is told and tried again.

    Updates stay in the spool until a snapshot has them: it is taken early where they fill it.
    """

    def __init__(
        self,
        path: Path,
        relay: Relay,
        models: ModelServer,
        world: RemoteWorld,
        spool: Spool,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._relay = path, relay
        self._models, self._world, self._spool = models, world, spool
        self._every_s, self._clock = every_s, clock
        self._last = clock()
        self._thread: threading.Thread | None = None
        self._round = 0
        self._used: list[int] = []
        """Tasks whose updates are in the spool until the next snapshot; of one thread at a time."""

    def __call__(self, standing: Standing) -> None:
        if standing.round != self._round and self._relay.journal is not None:
            self._round = standing.round
            self._world.flush(self._relay.journal.sync)
        due = self._clock() - self._last >= self._every_s
        due = due or (bool(self._world.used) and self._spool.half_full)
        if due and standing.settled and (self._thread is None or not self._thread.is_alive()):
            self.save(wait=False)

    def join(self) -> None:
        """Wait for the one that is being written."""
        if self._thread is not None:
            self._thread.join()

    def save(self, wait: bool) -> None:
        """Save what is now; wait: until it is on disk."""
        self.join()
        if self._relay.journal is None:
            return
        self._world.flush(self._relay.journal.sync)
        self._last = self._clock()
        self._used += self._world.used
        self._world.used = []
        values = {"lines": self._relay.journal.lines, "state": self._models.state()}
        self._thread = threading.Thread(target=self._write, args=(values,))
        self._thread.start()
        if wait:
            self._thread.join()

    def _write(self, values: dict[str, Any]) -> None:
        try:
            files.save(self._path, values)
            while self._used:
                self._spool.forget(self._used[-1])
                self._used.pop()
        except (FedpaceError, OSError) as error:
            log.error("%s; the run goes on, and the next snapshot will be tried in time", error)
