"""Snapshots of a served run's state, taken once a second, from which metrics and health are read.

So a scrape costs the run nothing, however often and from how many it comes, and what it shows is of one
moment. Whatever may wait for a disk is asked in a thread.
"""

import asyncio
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedpace.net.connections import Connection
from fedpace.net.keys.gate import Gate
from fedpace.net.limits.sockets import SocketWatch
from fedpace.net.monitor.counters import Counts
from fedpace.net.monitor.delays import task_delays
from fedpace.net.server import Server
from fedpace.remote.defence.pauses import PauseClock
from fedpace.remote.reports import ClientRecord
from fedpace.remote.settings import ServeSettings
from fedpace.remote.spool import Spool
from fedpace.remote.world import RemoteWorld

EVERY_S = 1.0
RUN_STATES = ("waiting", "running", "over")
CLIENT_STATES = ("here", "getting_ready", "broken", "paused", "away", "shut_out")
MOST_SLOTS = 32
"""Model slots that are shown; policies have a few."""


@dataclass(frozen=True, slots=True)
class DiskState:
    """Room where the run's folder is.

    snapshot_age_s: of the models on disk; of this process where it has not saved any yet.
    """

    free_bytes: int
    total_bytes: int
    journal_bytes: int
    snapshot_age_s: float


@dataclass(frozen=True, slots=True)
class ClientRow:
    """One client, for who asks for clients by name."""

    name: str
    state: str
    seen_s: float | None
    task_age_s: float
    late_s: float
    updates: int
    refused: int


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """State of a run at one moment. taken_at: by `time.monotonic`; run_s: by the run's clock.

    connections_cut: shut down as too many, or for proving nothing; flagged_speeds: reports of speeds
    that were not those seen; paused_s: in which the process stood still; journal_fault: why the
    journal cannot be written, empty: it can; lag_s: how late the event loop was; key_ends: in seconds
    since 1970, by whose they are.
    """

    taken_at: float
    state: str
    run_s: float
    versions: dict[str, int]
    clients: dict[str, int]
    places: int
    wait_for: int
    open_tasks: int
    late_tasks: int
    oldest_task_s: float
    most_late_s: float
    updates_waiting: int
    queues: dict[str, int]
    spool_bytes: int
    spool_limit_bytes: int
    connections: int
    connections_cut: int
    addresses_blocked: int
    flagged_speeds: int
    paused_s: float
    disk: DiskState
    journal_fault: str
    lag_s: float
    key_ends: dict[str, float]
    counts: Counts
    rows: tuple[ClientRow, ...] = ()


@dataclass
class RunWatch:
    """Takes snapshots of a run; `latest` is the last one, None before the first.

    All but `latest` belongs to the event loop of the server. journal_fault: tells why the journal
    cannot be written; names: clients are shown by name, too; over: the run has ended.
    """

    server: Server
    world: RemoteWorld
    settings: ServeSettings
    spool: Spool
    gate: Gate
    folder: Path
    places: int
    journal_fault: Callable[[], str]
    sockets: SocketWatch
    clock: PauseClock
    names: bool = False
    over: bool = False
    latest: RunSnapshot | None = field(default=None, init=False)

    async def watch(self) -> None:
        """Take one now and then; until cancelled."""
        lag_s, since = 0.0, time.time()
        while True:
            disk = await asyncio.to_thread(look_at_disk, self.folder, since)
            self.latest = self.take(disk, lag_s)
            before = time.monotonic()
            await asyncio.sleep(EVERY_S)
            lag_s = max(time.monotonic() - before - EVERY_S, 0.0)

    def take(self, disk: DiskState, lag_s: float = 0.0) -> RunSnapshot:
        """What is now."""
        world, server, now = self.world, self.server, self.clock()
        books, records = world.desk.books, list(world.clients)
        delays = task_delays(world, server.connections, server.counters, now, self.settings.beat_s)
        connections = list(server.connections)
        by_client = {one.client: one for one in connections}
        states = [
            client_state(record, by_client.get(client), now) for client, record in enumerate(records)
        ]
        waits = min(self.settings.wait_for or self.places, self.places)
        snapshot: dict[str, Any] = {
            "taken_at": time.monotonic(),
            "state": "over" if self.over else "running" if world.started else "waiting",
            "run_s": world.now(),
            "versions": dict(list(books.versions.items())[:MOST_SLOTS]),
            "clients": {state: states.count(state) for state in CLIENT_STATES},
            "places": self.places,
            "wait_for": waits,
            "open_tasks": len(delays),
            "late_tasks": sum(one.late_s > 0 for one in delays),
            "oldest_task_s": max((one.age_s for one in delays), default=0.0),
            "most_late_s": max((one.late_s for one in delays), default=0.0),
            "updates_waiting": len(books.updates),
            "queues": {
                "reports": world.unheard,
                "messages": sum(one.outbox.qsize() for one in connections),
                "acks": len(world.desk.pending_acks),
            },
            "spool_bytes": self.spool.used_bytes,
            "spool_limit_bytes": self.spool.total_bytes or 0,
            "connections": self.sockets.count,
            "connections_cut": self.sockets.cut,
            "addresses_blocked": len(self.sockets.blocked),
            "flagged_speeds": sum(record.flagged for record in records),
            "paused_s": self.clock.paused_s,
            "disk": disk,
            "journal_fault": self.journal_fault(),
            "lag_s": lag_s,
            "key_ends": self._key_ends(connections),
            "counts": server.counters.counts(),
        }
        if self.names:
            late = {one.client: one for one in delays}
            rows = []
            for client, record in enumerate(records):
                link, task = by_client.get(client), late.get(client)
                seen_s = None if link is None else now - link.seen_at
                times = (0.0, 0.0) if task is None else (task.age_s, task.late_s)
                counts = (record.updates, record.refused)
                rows.append(ClientRow(record.name, states[client], seen_s, *times, *counts))
            snapshot["rows"] = tuple(rows)
        return RunSnapshot(**snapshot)

    def _key_ends(self, connections: list[Connection]) -> dict[str, float]:
        ends = {}
        if self.gate.tls is not None:
            ends["server"] = self.gate.tls.pair.certificate.not_valid_after_utc.timestamp()
            ends["authority"] = self.gate.tls.ca.not_valid_after_utc.timestamp()
        own = [one.identity.until.timestamp() for one in connections if one.identity is not None]
        return {**ends, "first_client": min(own)} if own else ends


def client_state(record: ClientRecord, connection: Connection | None, now: float) -> str:
    """One of CLIENT_STATES."""
    if now < record.shut_out_until:
        return "shut_out"
    if record.back_at is not None:
        return "paused"
    if connection is not None and connection.open:
        return "here" if connection.here else "getting_ready"
    return "broken" if record.online else "away"


def look_at_disk(folder: Path, since: float) -> DiskState:
    """Room and files of a run's folder. since: when this process began, in seconds since 1970."""
    usage = shutil.disk_usage(folder)
    journal = sum(_stat(path)[0] for path in folder.glob("journal.jsonl*"))
    saved = [_stat(path)[1] for path in folder.glob("snapshot*.pt")]
    age_s = time.time() - max(saved, default=since)
    return DiskState(usage.free, usage.total, journal, max(age_s, 0.0))


def _stat(path: Path) -> tuple[int, float]:
    """Size and time of change; of a file that is gone, nothing."""
    try:
        found = os.stat(path)
        return found.st_size, found.st_mtime
    except OSError:
        return 0, 0.0
