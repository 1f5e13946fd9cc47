"""The answer to Status: clients, their tasks and their progress, for people to read."""

from fedpace.core.commands import Probe, Train
from fedpace.net import federation_pb2 as pb
from fedpace.net.connections import Connection, Connections
from fedpace.net.keys.gate import Gate
from fedpace.net.keys.identity import day, ends_soon
from fedpace.net.monitor.counters import RunCounters
from fedpace.net.monitor.delays import TaskDelay
from fedpace.remote.world import RemoteWorld


def add_clients(
    reply: pb.StatusReply,
    world: RemoteWorld,
    connections: Connections,
    counters: RunCounters,
    delays: list[TaskDelay],
    now: float,
    only: str | None = None,
) -> None:
    """Add a row for every client of the run. delays: of open tasks; only: for the one of this name."""
    oldest = {one.client: one for one in sorted(delays, key=lambda one: one.age_s)}
    by_client = {one.client: one for one in connections}
    for client, record in enumerate(world.clients):
        if only not in (None, record.name):
            continue
        connection = by_client.get(client)
        rates = connection.rates if connection is not None else None
        row = reply.clients.add(
            name=record.name,
            client=client,
            state=_presence(record.online, connection),
            doing=_progress(world.tasks_of(client), connection),
            last_seen_s=now - connection.seen_at if connection is not None else -1.0,
            updates=record.updates,
            refused=record.refused,
        )
        if connection is not None and connection.identity is not None:
            row.keys_end = connection.identity.until.timestamp()
        refusal, delay = counters.last_refusal(client), oldest.get(client)
        if refusal is not None:
            row.last_refusal, row.refused_ago_s = refusal.reason, now - refusal.at
        if delay is not None:
            row.task, row.phase = delay.task, delay.phase
            row.task_age_s, row.late_s = delay.age_s, delay.late_s
        if rates is not None:
            row.batch_s = rates.batch_s
            row.down_s, row.up_s = rates.down_s, rates.up_s


def add_warnings(
    reply: pb.StatusReply, gate: Gate, connections: Connections, only: str | None = None
) -> None:
    """Add what ends soon: keys of clients that are here, and for operators the server's own."""
    if gate.tls is not None and only is None:
        reply.warnings.extend(gate.tls.warnings())
    for connection in connections:
        own = connection.identity
        if own is not None and only in (None, own.name) and ends_soon(own.until, gate.clock()):
            reply.warnings.append(f"the {own.kind} of {own.name} ends {day(own.until)}")


def _presence(online: bool, connection: Connection | None) -> str:
    if connection is not None and connection.open:
        return "here" if connection.here else "getting ready"
    return "connection broken" if online else "away"


def _progress(commands: list[Probe | Train], connection: Connection | None) -> str:
    if not commands:
        return "waits"
    task, version = commands[0].task, commands[0].version
    known = connection is not None and connection.task == task
    steps = f", {connection.steps} batches" if connection is not None and known else ""
    word = "trains" if isinstance(commands[0], Train) else "is probed"
    return f"{word} from version {version} (task {task}{steps})"
