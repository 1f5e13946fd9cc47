"""Who is there: Flower's nodes, and the clients of the run that they have become."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from fedpace.core.errors import PeerError
from fedpace.flower.letters import Letter
from fedpace.flower.nodes import Node
from fedpace.net import federation_pb2 as pb
from fedpace.net.keys.identity import is_name
from fedpace.remote.reports import ClientLost, ClientReady, JoinRequest, Report

log = logging.getLogger("fedpace.server")


class Crowd:
    """Nodes by Flower's number, clients by the run's. report: tells the run.

    A node becomes a client when it has answered a hello, in that order; one that is listed no more has
    left. model: digest of the layers that a client must have.
    """

    def __init__(
        self, model: str, report: Callable[[Report], None], clock: Callable[[], float]
    ) -> None:
        self._model, self._report, self._clock = model, report, clock
        self.nodes: dict[int, Node] = {}
        self.clients: dict[int, Node] = {}
        self._expected: dict[int, float] = {}

    def expect(self, clients: Iterable[int], within_s: float) -> None:
        """These were here before the server's restart: who does not come back in time has left."""
        self._expected = dict.fromkeys(clients, self._clock() + within_s)

    def see(self, here: Sequence[int]) -> None:
        """These nodes are listed now."""
        now = self._clock()
        for number in set(self.nodes).difference(here):
            node = self.nodes.pop(number)
            if node.client is not None:
                del self.clients[node.client]
                self._report(ClientLost(node.client, "Flower lists its node no more"))
        for number in here:
            if number not in self.nodes:
                self.nodes[number] = Node(number, now)
        for client in [one for one, until in self._expected.items() if now >= until]:
            del self._expected[client]
            if client not in self.clients:
                self._report(ClientLost(client, "it did not come back after the server's restart"))

    def greeted(self, node: Node, letter: Letter) -> None:
        """A node has said who it is: ask the run for its number."""
        hello, ready = letter.read("hello", pb.Hello), letter.read("ready", pb.Ready)
        if not is_name(hello.name) or not 1 <= ready.samples <= 10**12:
            raise PeerError(f"{hello.name[:50]!r} with {ready.samples} samples cannot take part")
        if hello.model != self._model:
            raise PeerError("its model has other layers than the server's; build the same one")
        node.name, node.samples, node.knock = hello.name, ready.samples, Future()
        self._report(JoinRequest(node.name, node.knock))

    def take_in(self, node: Node) -> None:
        """Make a client of a node whose number has come; of none that the run has not let in."""
        knock, came = node.knock, node.came
        if came is not None and came.done():
            node.came = None
            refusal = came.exception()
            if refusal is not None and node.client is not None:
                del self.clients[node.client]
                self._leave_alone(node, 0.0)
                self.put_off(node, str(refusal))
        if knock is None or not knock.done():
            return
        node.knock = None
        try:
            client = knock.result()
        except (PeerError, OSError) as error:
            self.put_off(node, str(error))
            return
        before = self.clients.get(client)
        if before is not None:
            log.warning("%s is node %d now, and not %d", node.name, node.number, before.number)
            self._leave_alone(before, math.inf)
        node.client, node.refusals = client, 0
        self.clients[client] = node
        node.came = Future()
        self._report(ClientReady(client, node.samples, None, str(node.number), True, node.came))

    def put_off(self, node: Node, reason: str) -> None:
        """A node does not become a client yet."""
        pause_s = node.pause(self._clock())
        name = node.name or f"node {node.number}"
        log.warning("%s does not take part: %s; it is asked again in %.0f s", name, reason, pause_s)

    def send_away(self, client: int, for_s: float, reason: str) -> None:
        """The run may have let in another node under the client's name meanwhile: it hears of this."""
        if client in self.clients:
            self._leave_alone(self.clients.pop(client), for_s)
            self._report(ClientLost(client, reason))

    def _leave_alone(self, node: Node, for_s: float) -> None:
        node.client, node.came, node.greet_at = None, None, self._clock() + for_s
        node.queue.clear()
