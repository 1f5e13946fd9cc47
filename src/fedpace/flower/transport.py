"""The run's transport to Flower's nodes: commands go out as messages, replies come back as reports.

The run has a thread of its own and leaves its commands here; `turn`, called again and again by the
ServerApp's thread, is all that talks to the Grid.
Differs: Flower cannot end what a node does. A cancelled task that is out goes on to its end, and what
comes of it is ignored; until then its node has no time for another.
"""

import hashlib
import logging
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable

from fedpace.core.commands import Cancel, Probe, Train
from fedpace.core.errors import PeerError
from fedpace.core.events import Arrived, Failed, Profiled, Rates
from fedpace.flower.messages import HELLO, PROBE, TRAIN, MessageGrid, NodeMessage, NodeReply
from fedpace.flower.nodes import Node, QueuedCommand, SentMessage
from fedpace.flower.registry import NodeRegistry
from fedpace.flower.settings import FlowerSettings
from fedpace.remote.messages import (
    Introduction,
    TaskFailure,
    TaskOrder,
    TaskReport,
    from_json,
    read_report,
)
from fedpace.remote.reports import MOST_S, MOST_SAMPLES, Report
from fedpace.remote.spool import Spool
from fedpace.remote.updates import ReceivedUpdates
from fedpace.remote.world import RemoteWorld

log = logging.getLogger("fedpace.server")


class FlowerTransport:
    """A ClientTransport over Flower.

    seed, settings: of the run and of local training (JSON), told with every order; model: digest of
    the layers that a node must have; quarantine_s: how long one that was expelled is left alone.
    """

    def __init__(
        self,
        grid: MessageGrid,
        flower: FlowerSettings,
        seed: int,
        settings: str,
        model: str,
        models: ReceivedUpdates,
        spool: Spool,
        quarantine_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._grid, self._flower = grid, flower
        self._seed, self._settings = seed, settings
        self._models, self._spool = models, spool
        self._quarantine_s = quarantine_s
        self._clock = clock
        self.registry = NodeRegistry(model, self._put, clock)
        self._wanted: deque[Callable[[], None]] = deque()
        """Actions that the run's thread asks for."""
        self._woken = threading.Event()

    def attach(self, world: RemoteWorld) -> None:
        """Set the world that reports go to."""
        self._world = world

    # ClientTransport: called by the run's thread

    def send_command(self, client: int, command: Probe | Train | Cancel, left_s: float | None) -> None:
        until = None if left_s is None else self._clock() + left_s
        self._later(lambda: self._take(client, command, until))

    def send_ack(self, client: int, task: int) -> None:
        """The process that sent it has ended by now."""

    def send_refusal(self, client: int, task: int, reason: str) -> None:
        """The world has said so in its log, and nobody else is there to be told."""

    def expel(self, client: int, reason: str) -> None:
        self._later(lambda: self.registry.expel(client, self._quarantine_s, reason))

    def dismiss(self, client: int, reason: str) -> None:
        """A node cannot be told to go; it is left alone, as one that was expelled."""
        self.expel(client, reason)

    def _later(self, act: Callable[[], None]) -> None:
        self._wanted.append(act)
        self._woken.set()

    # The ServerApp's thread

    def turn(self) -> None:
        """Look for nodes, send what waits to be sent, and report what has come."""
        self.registry.update(self._grid.nodes())
        while self._wanted:
            self._wanted.popleft()()
        nodes = list(self.registry.nodes.values())
        for node in nodes:
            self.registry.admit(node)
            if node.sent is None:
                self._send(node)
        out = {node.sent.id: node for node in nodes if node.sent is not None}
        for reply in self._grid.pull(list(out)) if out else ():
            if reply.to in out:
                self._hear(out[reply.to], reply)

    def wait(self) -> None:
        """Wait until the run wants something, or it is time to ask the Grid again."""
        if self._woken.wait(self._flower.poll_s):
            self._woken.clear()

    def _put(self, report: Report) -> None:
        self._world.put(report)

    def _take(self, client: int, command: Probe | Train | Cancel, until: float | None) -> None:
        node = self.registry.clients.get(client)
        if node is None:
            return
        if isinstance(command, Cancel):
            node.queue = deque(one for one in node.queue if one.command.task != command.task)
        else:
            node.queue.append(QueuedCommand(client, command, until))

    def _send(self, node: Node) -> None:
        """Send the next message, if there is one."""
        now = self._clock()
        if node.client is None and node.number_asked is None and now >= node.greet_at:
            self._push(node, HELLO, NodeMessage(), None)
        while node.queue and node.sent is None:
            queued = node.queue.popleft()
            file = self._models.file(queued.command.task)
            if file is None:
                continue  # it is over already
            left_s = node.left_s(queued, now, self._flower.message_s)
            order = TaskOrder(queued.command, self._seed, self._settings, left_s)
            kind = TRAIN if isinstance(queued.command, Train) else PROBE
            self._push(node, kind, NodeMessage.of(order, file), queued)

    def _push(self, node: Node, kind: str, message: NodeMessage, queued: QueuedCommand | None) -> None:
        known_by = self._grid.push(node.number, kind, message, self._flower.ttl_s)
        if known_by is None:
            self._fail(node, queued, "Flower did not take the message")
        else:
            node.sent = SentMessage(known_by, queued, self._clock())

    def _hear(self, node: Node, reply: NodeReply) -> None:
        sent, node.sent = node.sent, None
        if sent is None:
            return
        try:
            if reply.message is None:
                raise PeerError(reply.error)
            if sent.queued is None:
                node.hello_s = self._clock() - sent.at
                self.registry.ask_to_join(node, from_json(Introduction, reply.message.text))
            else:
                report = read_report(reply.message.text)
                self._report(node, sent, sent.queued, report, reply.message.file)
        except (PeerError, OSError) as error:
            self._fail(node, sent.queued, str(error)[:500])

    def _report(
        self,
        node: Node,
        sent: SentMessage,
        queued: QueuedCommand,
        report: TaskReport | TaskFailure,
        file: bytes | None,
    ) -> None:
        """Tell the run what a node has answered to a command."""
        client, task = queued.client, queued.command.task
        if isinstance(report, TaskFailure):
            raise PeerError(report.reason)
        if not 0 <= report.busy_s < MOST_S:
            raise PeerError(f"busy_s is {report.busy_s}; expected seconds")
        trip_s = max(self._clock() - sent.at - report.busy_s, 0.0)
        node.trips.append(trip_s)
        probed = isinstance(queued.command, Probe)
        rates = self._rates(node, report, trip_s if probed else None)
        if probed:
            self._put(Profiled(0.0, client, task, rates))
            return
        if report.task != task or report.result is None or report.version is None or file is None:
            raise PeerError(f"task {task} was answered with task {report.task}, or without an update")
        if self._world.wants(client, task):
            self._keep(task, file)
        self._put(
            Arrived(
                at=0.0,
                client=client,
                task=task,
                version=report.version,
                result=report.result,
                up_bytes=len(file),
                rates=rates,
            )
        )

    def _rates(self, node: Node, report: TaskReport, probe_s: float | None) -> Rates:
        batch_s, batches = report.batch_s, report.batches
        if not (0 <= batch_s < MOST_S and 1 <= batches <= MOST_SAMPLES):
            raise PeerError(f"impossible rates are reported: {batch_s} s a batch, {batches} batches")
        return node.rates(batch_s, batches, self._flower.message_s, probe_s)

    def _keep(self, task: int, file: bytes) -> None:
        """Put an update where the world looks for it."""
        self._spool.offer(task, len(file), hashlib.sha256(file).digest())
        self._spool.append(task, 0, file, zlib.crc32(file))
        self._spool.finish(task)

    def _fail(self, node: Node, queued: QueuedCommand | None, reason: str) -> None:
        if queued is None:
            self.registry.put_off(node, reason)
        else:
            log.warning("task %d of %s failed: %s", queued.command.task, node.name, reason)
            self._put(Failed(0.0, queued.client, queued.command.task, reason))
