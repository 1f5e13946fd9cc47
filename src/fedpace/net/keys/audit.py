"""The audit log of a keys folder: who did what, when and from where. Lines are only added."""

import getpass
import json
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fedpace.core.errors import ConfigError

AUDIT = "audit.jsonl"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who does something. who: a member's name, or a user of the server's machine; where: from."""

    who: str
    where: str

    @classmethod
    def local(cls) -> "Actor":
        """The user of this process."""
        try:
            user = getpass.getuser()
        except (KeyError, OSError):  # a container may know no name for it
            user = f"user {os.getuid()}"
        return cls(f"user {user}", socket.gethostname())


def write_audit(folder: Path, what: str, actor: Actor, at: datetime, **facts: Any) -> None:
    """Add a line, on disk when this returns; OSError where it cannot be."""
    line = {"at": at.astimezone(UTC).isoformat(timespec="seconds"), "what": what}
    line |= {"who": actor.who, "from": actor.where}
    text = json.dumps(line | {name: fact for name, fact in facts.items() if fact is not None})
    handle = os.open(folder / AUDIT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(handle, text.encode() + b"\n")  # one call: lines of two processes do not mix
        os.fsync(handle)
    finally:
        os.close(handle)


def read_audit(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines of a folder's audit log, from the first on."""
    path = folder / AUDIT
    if not path.exists():
        return
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            yield dict(json.loads(line))
        except (ValueError, TypeError) as error:
            raise ConfigError(f"line {number} of {path} is broken: {error}") from error
