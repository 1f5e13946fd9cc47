"""The answer to Status: clients, their tasks and their progress, for people to read."""

from fedpace.core.commands import Probe, Train
from fedpace.net import federation_pb2 as pb
from fedpace.net.connections import Connection, Connections
from fedpace.remote.world import RemoteWorld


def add_clients(
    reply: pb.StatusReply, world: RemoteWorld, connections: Connections, now: float
) -> None:
    """Add a row for every client of the run."""
    by_client = {one.client: one for one in connections}
    for client, record in enumerate(world.clients):
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
        if rates is not None:
            row.batch_s = rates.batch_s
            row.down_s, row.up_s = rates.down_s, rates.up_s


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
