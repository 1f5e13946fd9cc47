"""What a run waits for: open tasks with their age, how late they are, and why.

A task is late by its client's own speeds, or by the time that its work must end, where that is set; it
fails at its deadline, which is a multiple of that. How far a client is comes from its beats and from
its transfers, which the server sees.
"""

from dataclasses import dataclass

from fedpace.core.books import OpenTask
from fedpace.core.commands import Probe, Train
from fedpace.net import federation_pb2 as pb
from fedpace.net.connections import Connection, Connections
from fedpace.net.monitor.counters import RunCounters
from fedpace.remote.world import RemoteWorld

MOST_NAMED = 3
"""Clients that are named as what a run waits for."""
_HANGS_S = 10.0
"""Seconds without a batch after which one that takes far less is missed."""
_HANGS_BATCHES = 5.0
_SILENT_BEATS = 2.0


@dataclass(frozen=True, slots=True)
class TaskDelay:
    """An open task. phase: order, download, compute or upload, empty where it is not known here.

    late_s: behind its client's speeds; left_s: what it will still take by them, None: not known.
    """

    client: int
    name: str
    task: int
    phase: str
    age_s: float
    late_s: float
    left_s: float | None
    why: str


def task_delays(
    world: RemoteWorld, connections: Connections, counters: RunCounters, now: float, beat_s: float
) -> list[TaskDelay]:
    """Open tasks, the longest wait first. now: by the server's clock."""
    by_client = {one.client: one for one in connections}
    books, run_s = world.desk.books, world.now()
    found = []
    for given in list(books.open.values()):
        client = given.command.client
        connection = by_client.get(client)
        age_s = max(run_s - given.opened_at, 0.0)
        whole_s = world.desk.deadlines.expected_s(given.command, given.opened_at)
        left_s = world.desk.deadlines.left_s(given.command.task, run_s)
        late_s = 0.0 if whole_s is None else max(age_s - whole_s, 0.0)
        phase, since = counters.phase_of(given.command.task) or ("", now)
        found.append(
            TaskDelay(
                client,
                world.clients[client].name,
                given.command.task,
                phase,
                age_s,
                late_s,
                None if whole_s is None else max(whole_s - age_s, 0.0),
                _reason(given, connection, phase, now - since, now, beat_s)
                + (f"; its task fails in {left_s:.0f} s" if late_s and left_s is not None else ""),
            )
        )
    return sorted(found, key=lambda one: (one.late_s, one.left_s or 0.0, one.age_s), reverse=True)


def hold_ups(delays: list[TaskDelay], world: RemoteWorld, places: int, fault: str) -> list[pb.HoldUp]:
    """What the run waits for, for people. places: clients that it begins with; fault: of its disk."""
    if fault:
        return [pb.HoldUp(why=f"waits for its disk: {fault}")]
    if not world.started:
        here = sum(record.online for record in world.clients)
        return [pb.HoldUp(why=f"waits for clients: {here} of {places} are here")]
    if delays:
        return [pb.HoldUp(name=one.name, why=one.why, late_s=one.late_s) for one in delays[:MOST_NAMED]]
    timers = dict(world.desk.books.timers)
    if timers:
        name = min(timers, key=lambda one: timers[one])
        left_s = max(timers[name] - world.now(), 0.0)
        return [pb.HoldUp(why=f"nobody has a task; the policy waits {left_s:.1f} s for {name!r}")]
    return [pb.HoldUp(why="nobody has a task, and no timer is set: the policy waits for clients")]


def _total_steps(command: Train, rates: pb.Rates) -> int:
    work = command.work
    return work.steps or (work.epochs or 1) * rates.batches


def _reason(
    given: OpenTask,
    connection: Connection | None,
    phase: str,
    phase_s: float,
    now: float,
    beat_s: float,
) -> str:
    """Why a task is not there yet."""
    if connection is None or not connection.open:
        return "its connection is broken"
    silent_s = now - connection.seen_at
    if connection.doubted_at is not None:
        return "its keys do not hold now"
    if silent_s > _SILENT_BEATS * beat_s:
        return f"nothing was heard of it for {silent_s:.1f} s"
    if phase == "order":
        return f"it has not asked for its model for {phase_s:.1f} s"
    if phase in ("download", "upload"):
        return f"its {'model' if phase == 'download' else 'update'} is on its way for {phase_s:.1f} s"
    return _progress(given.command, connection, now)


def _progress(command: Probe | Train, connection: Connection, now: float) -> str:
    """How far training is, by the client's beats."""
    if connection.task != command.task:
        return "it has not begun to train"
    steps, rates = connection.steps, connection.rates
    still_s = now - connection.moved_at
    batch_s = rates.batch_s if rates is not None else 0.0
    if still_s > max(_HANGS_S, _HANGS_BATCHES * batch_s):
        return f"it hangs: no batch for {still_s:.0f} s, after {steps}"
    if rates is None or isinstance(command, Probe):
        return f"it trains, {steps} batches are done"
    total = _total_steps(command, rates)
    return f"it trains, {steps} of {total} batches are done, at {batch_s:.3g} s each"
