"""The interface of what carries a run's messages to its clients: gRPC, Flower, or a test."""

from typing import Protocol

from fedpace.core.commands import Cancel, Probe, Train


class ClientTransport(Protocol):
    """Sends to clients. Calls return at once; a client that is not connected is no error.

    send_command: left_s: seconds until its work must end; send_ack: the client's update is safe;
    send_refusal: what it reported of a task is not used; expel: it is disconnected; dismiss: it is
    told that it is done here.
    """

    def send_command(
        self, client: int, command: Probe | Train | Cancel, left_s: float | None
    ) -> None: ...
    def send_ack(self, client: int, task: int) -> None: ...
    def send_refusal(self, client: int, task: int, reason: str) -> None: ...
    def expel(self, client: int, reason: str) -> None: ...
    def dismiss(self, client: int, reason: str) -> None: ...
