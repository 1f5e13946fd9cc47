"""A run is its journal: JSON lines, one header, then every event, command and fact in order.

A command has no time of its own: it was given at the time of the event before it. A journal under
work carries the suffix `.part`; closing it renames it. Reading one back needs nothing else.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from fedpace.core import codec
from fedpace.core.codec import Message
from fedpace.core.commands import Command
from fedpace.core.errors import JournalError
from fedpace.core.evaluation.metric import ACCURACY, LOSS
from fedpace.core.events import Event
from fedpace.core.policy import Context, Policy
from fedpace.core.session import Session

FORMAT = 3
READABLE = (2, FORMAT)
"""Formats that can be read: in format 2 the tests of models had accuracy and loss alone."""
JOURNAL = "journal.jsonl"
"""Name of the journal in the folder of a run."""
_AT_ONCE = 256
"""Lines that are put together before they go to the file."""


@dataclass(frozen=True)
class Header:
    """The first line: what is needed to make the same policy again.

    policy: its name or import path; settings: its settings as plain values;
    run: the runtime's own settings, for people and for resuming.
    """

    policy: str
    settings: dict[str, Any]
    context: Context
    run: dict[str, Any]
    fedpace: str
    format: int = FORMAT


def part_path(path: Path) -> Path:
    """Path of a journal whose run is going on."""
    return path.with_name(path.name + ".part")


class UnwrittenJournal(JournalError, OSError):
    """Lines found no room on the disk; they are still in memory."""


class Journal:
    """Writes a journal to disk. Used as a context: leaving it in good order renames the file.

    A line stays in memory until all of it is in the file. An OSError, of a full disk, leaves the file
    with the lines that it had, and the next call tries again.
    patient: `write` keeps lines that find no room, and says nothing; `flush` does.
    """

    def __init__(self, path: Path, header: Header, patient: bool = False) -> None:
        self.path, self.lines, self.patient = path, 1, patient
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(part_path(path), "wb", buffering=0, opener=_open_private)  # noqa: SIM115
        self._end = 0
        self._waiting = [codec.encode(header)]
        self._write_out()

    @classmethod
    def resume(cls, path: Path, lines: int, patient: bool = False) -> Self:
        """Go on with a journal after its first `lines` lines; the rest is cut off."""
        journal = cls.__new__(cls)
        journal._go_on(path, lines, patient)
        return journal

    def _go_on(self, path: Path, lines: int, patient: bool) -> None:
        self.path, self.lines, self.patient = path, lines, patient
        self._waiting = []
        with part_path(path).open("rb") as file:
            for number in range(lines):
                if not file.readline().endswith(b"\n"):
                    raise JournalError(
                        f"{part_path(path)} has {number} lines, but its snapshot needs {lines}"
                    )
            self._end = file.tell()
        self._file = part_path(path).open("r+b", buffering=0)
        self._file.truncate(self._end)

    def write(self, message: Message) -> None:
        self._waiting.append(codec.encode(message))
        self.lines += 1
        if len(self._waiting) >= _AT_ONCE:
            try:
                self._write_out()
            except OSError:
                if not self.patient:
                    raise

    def flush(self) -> None:
        """Hand every line so far to the system: it survives the end of this process."""
        self._write_out()

    def _write_out(self) -> None:
        """Write the lines that wait behind those that are there, all or none."""
        if not self._waiting:
            return
        left = memoryview(b"\n".join(self._waiting) + b"\n")
        end = self._end
        try:
            self._file.seek(end)
            while left:
                written = self._file.write(left) or 0
                left, end = left[written:], end + written
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(self._end)
            raise self._unwritten(error) from error
        self._end = end
        self._waiting.clear()

    def sync(self) -> None:
        """Make sure that every line so far is on disk."""
        self.flush()
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise self._unwritten(error) from error

    def _unwritten(self, error: OSError) -> "UnwrittenJournal":
        return UnwrittenJournal(
            f"{part_path(self.path)} cannot be written: {error.strerror or error}; free some space and "
            "resume"
        )

    def close(self, complete: bool) -> None:
        """Close the file, whatever happens; an OSError says that the last lines are not in it."""
        if self._file.closed:
            return
        try:
            self.sync()
        finally:
            self._file.close()
        if complete:
            os.replace(part_path(self.path), self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close(complete=True)
        else:
            with suppress(OSError):  # what ended the run is what is to be told
                self.close(complete=False)


class Memory:
    """A journal that stays in memory."""

    def __init__(self) -> None:
        self.messages: list[Message] = []

    def write(self, message: Message) -> None:
        self.messages.append(message)


def read(path: Path, unfinished: bool = False) -> tuple[Header, Iterator[Message]]:
    """The header, and the messages as they are read. JournalError names the broken line.

    unfinished: the run may be going on; a last line that is not whole is left out.
    """
    if not path.is_file():
        raise JournalError(f"there is no journal {path}; give the path of a run's journal.jsonl")
    lines = _lines(path, unfinished)
    try:
        header = _header(next(lines)[1], path)
    except StopIteration:
        raise JournalError(f"{path} is empty; the run wrote nothing") from None
    upgrade = _upgraded if header.format < FORMAT else bytes
    return header, (_message(number, upgrade(line), path) for number, line in lines)


class JournalLines:
    """Decodes a journal line by line, as they come. header: of the first; path: named in errors."""

    def __init__(self, path: Path) -> None:
        self.path, self.count = path, 0
        self.header: Header | None = None
        self._old = False

    def decode(self, line: bytes) -> Message | None:
        """The message of the next line; None for the first, which is the header."""
        self.count += 1
        if self.header is None:
            self.header = _header(line, self.path)
            self._old = self.header.format < FORMAT
            return None
        return _message(self.count, _upgraded(line) if self._old else line, self.path)


def replay(path: Path, policy: Policy[Any]) -> None:
    """Feed a journal's events to a fresh policy; JournalError at the first command that differs."""
    memory = Memory()
    session = Session(policy, memory)
    expected: list[Command] = []
    _, messages = read(path)

    def check(event: Event | None) -> None:
        given = [m for m in memory.messages if isinstance(m, Command)]
        if given != expected:
            raise JournalError(
                f"at time {session.books.now} the policy gave {given}, but {path} has {expected}"
            )
        memory.messages.clear()
        expected.clear()
        if event is not None:
            session.handle(event)

    for message in messages:
        if isinstance(message, Event):
            check(message)
        elif isinstance(message, Command):
            expected.append(message)
    check(None)


def _open_private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _lines(path: Path, unfinished: bool) -> Iterator[tuple[int, bytes]]:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not unfinished or line.endswith(b"\n"):
                yield number, line


def _header(line: bytes, path: Path) -> Header:
    try:
        found = codec.decode_as(dict[str, Any], line).get("format")
        if found not in READABLE:
            formats = " and ".join(map(str, READABLE))
            raise JournalError(f"journal format {found!r}, but this version reads formats {formats}")
        header = codec.decode_as(Header, line)
        if header.format < FORMAT:
            context = replace(header.context, metrics=(ACCURACY, LOSS))
            header = replace(header, context=context)
        return header
    except JournalError as error:
        other = "" if line.startswith(b"{") else "; give the journal.jsonl of a run"
        raise JournalError(f"{path}, line 1: {error}{other}") from error


def _upgraded(line: bytes) -> bytes:
    """A line of format 2 as it is written today."""
    if not line.startswith(b'{"fact":"evaluated"'):
        return line
    values = codec.decode_as(dict[str, Any], line)
    old = (ACCURACY.name, LOSS.name)
    values["metrics"] = {name: values.pop(name) for name in old if name in values}
    return codec.encode(values) + b"\n"


def _message(number: int, line: bytes, path: Path) -> Message:
    try:
        return codec.decode(line)
    except JournalError as error:
        raise JournalError(f"{path}, line {number}: {error}") from error
