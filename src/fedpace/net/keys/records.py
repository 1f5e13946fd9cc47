"""Changes to the records of a keys folder, one command at a time, without the authority's key.

`identity` says what the folder holds.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from fedpace.core.errors import unknown
from fedpace.core.host import write_whole
from fedpace.net.keys.audit import Actor, write_audit
from fedpace.net.keys.identity import (
    FIELDS,
    FILES,
    REVOKED,
    Identity,
    ProofKind,
    read_issued,
    read_revoked,
    records,
)
from fedpace.net.keys.joining import JOINING, Invitation, read_invitations

PUBLIC, PRIVATE = 0o644, 0o600
"""Permissions whatever the umask: a revocation by root must be readable for the server's user."""
_KEPT_INVITATIONS = 2000
"""Of join tokens that are over the oldest are forgotten; the audit log has them."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: who changes records reads them first."""
    handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Windows has no fcntl, and some network file systems know no locks.
        with suppress(ImportError, OSError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def identities(folder: Path) -> list[tuple[Identity, datetime | None]]:
    """All identities that were ever made, each with the time of its revocation, by name."""
    revoked = read_revoked(folder)
    kinds: tuple[ProofKind, ...] = ("certificate", "token")
    made = [identity for kind in kinds for identity in read_issued(folder, kind)]
    made.sort(key=lambda identity: (identity.name, identity.until))
    return [(identity, revoked.get((identity.kind, identity.key))) for identity in made]


def add_identity(folder: Path, identity: Identity, days: int) -> None:
    """Put an identity on record. days: that it is valid, and another one after it would be."""
    path = folder / FILES[identity.kind]
    record: dict[str, Any] = {
        "name": identity.name,
        FIELDS[identity.kind]: identity.key,
        "until": identity.until.isoformat(),
        "days": days,
    }
    if identity.role != "client":
        record["role"] = identity.role
    write_whole(path, dump([*records(path), record]), PUBLIC)


def days_of(folder: Path, identity: Identity, otherwise: int) -> int:
    """Days that an identity was made for."""
    for record in records(folder / FILES[identity.kind]):
        if record.get(FIELDS[identity.kind]) == identity.key:
            days = record.get("days", otherwise)
            return days if isinstance(days, int) and days > 0 else otherwise
    return otherwise


def revoke(
    folder: Path,
    name: str,
    now: datetime,
    actor: Actor,
    what: str = "revoked",
    reason: str | None = None,
) -> tuple[Identity, ...]:
    """Revoke all identities of a name and cancel its join tokens; those that counted, maybe none.

    what, reason: for the audit log.
    """
    with locked(folder):
        listed, invited = identities(folder), read_invitations(folder)
        known = {identity.name for identity, _ in listed} | {one.name for one in invited}
        if name not in known:
            raise unknown("client", name, known)
        ended = tuple(i for i, since in listed if i.name == name and since is None)
        if ended:
            record = {
                "name": name,
                "at": now.isoformat(timespec="seconds"),
                "certificates": [i.key for i in ended if i.kind == "certificate"],
                "tokens": [i.key for i in ended if i.kind == "token"],
            }
            path = folder / REVOKED
            write_whole(path, dump([*records(path), record]), PUBLIC)
        if any(one.name == name and one.is_open(now) for one in invited):
            put_invitations(folder, cancel(invited, name), now)
        write_audit(folder, what, actor, now, name=name, proofs=len(ended), reason=reason)
    return ended


def cancel(invitations: tuple[Invitation, ...], name: str) -> tuple[Invitation, ...]:
    """The same, but no token of this name counts."""
    return tuple(replace(one, cancelled=True) if one.name == name else one for one in invitations)


def put_invitations(folder: Path, invitations: tuple[Invitation, ...], now: datetime) -> None:
    """Write all join tokens, without the oldest of those that are over."""
    closed = [one for one in invitations if not one.is_open(now)]
    dropped = {one.id for one in closed[: max(len(closed) - _KEPT_INVITATIONS, 0)]}
    rows = [
        {key: value for key, value in asdict(one).items() if value} | {"until": one.until.isoformat()}
        for one in invitations
        if one.id not in dropped
    ]
    write_whole(folder / JOINING, dump(rows), PUBLIC)


def dump(rows: list[dict[str, Any]]) -> bytes:
    return (json.dumps(rows, indent=1) + "\n").encode()
