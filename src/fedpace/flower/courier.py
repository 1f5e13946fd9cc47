"""Between the run and Flower's nodes: commands go out as messages, replies come back as reports.

The run has a thread of its own and leaves its commands here; `turn`, called again and again by the
ServerApp's thread, is all that talks to the Grid.
Differs: Flower cannot end what a node does. A cancelled task that is out goes on to its end, and what
comes of it is ignored; until then its node has no time for another.
"""

import hashlib
import logging
import math
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable

from msgspec.structs import replace

from fedpace.core.commands import Cancel, Probe, Train
from fedpace.core.errors import PeerError
from fedpace.core.events import Failed, Profiled, Rates
from fedpace.flower.crowd import Crowd
from fedpace.flower.letters import HELLO, PROBE, TRAIN, Letter, Post, Reply, record
from fedpace.flower.nodes import Node, Order, Sent
from fedpace.flower.settings import FlowerSettings
from fedpace.net import federation_pb2 as pb
from fedpace.net import wire
from fedpace.remote.reports import Report
from fedpace.remote.spool import Spool
from fedpace.remote.updates import ReceivedUpdates
from fedpace.remote.world import RemoteWorld

log = logging.getLogger("fedpace.server")


class Courier:
    """The run's transport to Flower's nodes.

    welcome: what every node is told with an order; model: digest of the layers that it must have;
    quarantine_s: how long a node that was expelled is left alone.
    """

    def __init__(
        self,
        post: Post,
        settings: FlowerSettings,
        welcome: pb.Welcome,
        model: str,
        models: ReceivedUpdates,
        spool: Spool,
        quarantine_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._post, self._settings = post, settings
        self._welcome = welcome
        self._models, self._spool = models, spool
        self._quarantine_s = quarantine_s
        self._clock = clock
        self.crowd = Crowd(model, self._put, clock)
        self._told: deque[Callable[[], None]] = deque()
        """What the run wants done; its thread adds to it."""
        self._news = threading.Event()

    def attach(self, world: RemoteWorld) -> None:
        """The world that reports go to."""
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
        self._later(lambda: self.crowd.send_away(client, self._quarantine_s, reason))

    def _later(self, act: Callable[[], None]) -> None:
        self._told.append(act)
        self._news.set()

    # The ServerApp's thread

    def turn(self) -> None:
        """Look who is there, send what is to be sent, and report what has come."""
        self.crowd.see(self._post.nodes())
        while self._told:
            self._told.popleft()()
        nodes = list(self.crowd.nodes.values())
        for node in nodes:
            self.crowd.take_in(node)
            if node.sent is None:
                self._send(node)
        out = {node.sent.letter: node for node in nodes if node.sent is not None}
        for reply in self._post.pull(list(out)) if out else ():
            if reply.to in out:
                self._hear(out[reply.to], reply)

    def wait(self) -> None:
        """Until the run wants something, or it is time to ask again."""
        if self._news.wait(self._settings.poll_s):
            self._news.clear()

    def _put(self, report: Report) -> None:
        self._world.put(report)

    def _take(self, client: int, command: Probe | Train | Cancel, until: float | None) -> None:
        node = self.crowd.clients.get(client)
        if node is None:
            return
        if isinstance(command, Cancel):
            node.queue = deque(one for one in node.queue if one.command.task != command.task)
        else:
            node.queue.append(Order(client, command, until))

    def _send(self, node: Node) -> None:
        """The next letter, if there is one."""
        now = self._clock()
        if node.client is None and node.knock is None and now >= node.greet_at:
            self._push(node, HELLO, Letter({}), None)
        while node.queue and node.sent is None:
            order = node.queue.popleft()
            file = self._models.file(order.command.task)
            if file is None:
                continue  # it is over already
            left_s = node.left_s(order, now, self._settings.message_s)
            kind, name = (TRAIN, "train") if isinstance(order.command, Train) else (PROBE, "probe")
            welcome = record(self._welcome) | {"client": order.client}
            message = getattr(wire.order(order.command, left_s), name)
            self._push(node, kind, Letter({"welcome": welcome, name: record(message)}, file), order)

    def _push(self, node: Node, kind: str, letter: Letter, order: Order | None) -> None:
        known_by = self._post.push(node.number, kind, letter, self._settings.ttl_s)
        if known_by is None:
            self._fail(node, order, "Flower did not take the message")
        else:
            node.sent = Sent(known_by, order, self._clock())

    def _hear(self, node: Node, reply: Reply) -> None:
        sent, node.sent = node.sent, None
        if sent is None:
            return
        try:
            if reply.letter is None:
                raise PeerError(reply.error)
            trip_s = max(self._clock() - sent.at - reply.letter.busy_s, 0.0)
            if sent.order is None:
                node.hello_s = trip_s
                self.crowd.greeted(node, reply.letter)
            else:
                self._report(node, sent.order, reply.letter, trip_s)
        except (PeerError, OSError) as error:
            self._fail(node, sent.order, str(error)[:500])

    def _report(self, node: Node, order: Order, letter: Letter, trip_s: float) -> None:
        """A node has answered an order."""
        client, task = order.client, order.command.task
        if "failed" in letter.records:
            raise PeerError(letter.read("failed", pb.Failed).reason)
        node.trips.append(trip_s)
        probed = isinstance(order.command, Probe)
        rates = self._rates(node, letter.read("rates", pb.Rates), trip_s if probed else None)
        if probed:
            self._put(Profiled(0.0, client, task, rates))
            return
        done = letter.read("done", pb.Done)
        if done.task != task or letter.file is None:
            raise PeerError(f"task {task} was answered with task {done.task}, or without an update")
        if self._world.wants(client, task):
            self._keep(task, letter.file)
        self._put(replace(wire.arrived(client, done, len(letter.file)), rates=rates))

    def _rates(self, node: Node, measured: pb.Rates, probe_s: float | None) -> Rates:
        batch_s, batches = measured.batch_s, measured.batches
        if not (math.isfinite(batch_s) and 0 <= batch_s < 1e7 and 1 <= batches < 1e12):
            raise PeerError(f"impossible rates are reported: {batch_s} s a batch, {batches} batches")
        return node.rates(batch_s, batches, self._settings.message_s, probe_s)

    def _keep(self, task: int, file: bytes) -> None:
        """Put an update where the world looks for it."""
        self._spool.offer(task, len(file), hashlib.sha256(file).digest())
        self._spool.append(task, 0, file, zlib.crc32(file))
        self._spool.finish(task)

    def _fail(self, node: Node, order: Order | None, reason: str) -> None:
        if order is None:
            self.crowd.put_off(node, reason)
        else:
            log.warning("task %d of %s failed: %s", order.command.task, node.name, reason)
            self._put(Failed(0.0, order.client, order.command.task, reason))
