"""Flower's nodes, and the clients of the run that they have become."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from fedpace.core.errors import PeerError
from fedpace.flower.nodes import Node
from fedpace.remote.messages import Introduction
from fedpace.remote.reports import MOST_SAMPLES, ClientLost, ClientReady, JoinRequest, Report, is_name

log = logging.getLogger("fedpace.server")


class NodeRegistry:
    """Nodes by Flower's number, clients by the run's. report: tells the run.

    A node becomes a client when it has introduced itself, in that order; one that is listed no more has
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
        """Give clients that were here before the server's restart some time to come back."""
        self._expected = dict.fromkeys(clients, self._clock() + within_s)

    def update(self, listed: Sequence[int]) -> None:
        """Take in the nodes that Flower lists now; clients whose node it lists no more have left."""
        now = self._clock()
        for number in set(self.nodes).difference(listed):
            node = self.nodes.pop(number)
            if node.client is not None:
                del self.clients[node.client]
                self._report(ClientLost(node.client, "Flower lists its node no more"))
        for number in listed:
            if number not in self.nodes:
                self.nodes[number] = Node(number, now)
        for client in [one for one, until in self._expected.items() if now >= until]:
            del self._expected[client]
            if client not in self.clients:
                self._report(ClientLost(client, "it did not come back after the server's restart"))

    def ask_to_join(self, node: Node, said: Introduction) -> None:
        """Ask the run for the number of a node that has introduced itself."""
        if not is_name(said.name) or not 1 <= said.samples <= MOST_SAMPLES:
            raise PeerError(f"{said.name[:50]!r} with {said.samples} samples cannot take part")
        if said.model != self._model:
            raise PeerError("its model has other layers than the server's; build the same one")
        node.name, node.samples, node.number_asked = said.name, said.samples, Future()
        self._report(JoinRequest(node.name, node.number_asked))

    def admit(self, node: Node) -> None:
        """Make a client of a node whose number has come; of none that the run has not let in."""
        asked, ready = node.number_asked, node.ready
        if ready is not None and ready.done():
            node.ready = None
            refusal = ready.exception()
            if refusal is not None and node.client is not None:
                del self.clients[node.client]
                self._release(node, 0.0)
                self.put_off(node, str(refusal))
        if asked is None or not asked.done():
            return
        node.number_asked = None
        try:
            client = asked.result()
        except (PeerError, OSError) as error:
            self.put_off(node, str(error))
            return
        before = self.clients.get(client)
        if before is not None:
            log.warning("%s is node %d now, and not %d", node.name, node.number, before.number)
            self._release(before, math.inf)
        node.client, node.refusals = client, 0
        self.clients[client] = node
        node.ready = Future()
        self._report(ClientReady(client, node.samples, None, str(node.number), True, node.ready))

    def put_off(self, node: Node, reason: str) -> None:
        """Ask a node that does not become a client again later."""
        pause_s = node.pause(self._clock())
        name = node.name or f"node {node.number}"
        log.warning("%s does not take part: %s; it is asked again in %.0f s", name, reason, pause_s)

    def expel(self, client: int, for_s: float, reason: str) -> None:
        """Leave a client's node alone for a while.

        The run may have let in another node under the client's name meanwhile: it hears of this.
        """
        if client in self.clients:
            self._release(self.clients.pop(client), for_s)
            self._report(ClientLost(client, reason))

    def _release(self, node: Node, for_s: float) -> None:
        """Make a node that is no client of a client's; it is greeted after a while."""
        node.client, node.ready, node.greet_at = None, None, self._clock() + for_s
        node.queue.clear()
