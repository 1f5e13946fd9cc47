"""The beginning of a client's stream: checks of its hello, and the server's welcome."""

import re
from dataclasses import dataclass

from fedpace.net import federation_pb2 as pb
from fedpace.net.keys.identity import Identity
from fedpace.remote.reports import is_name

_INSTANCE = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class RunInfo:
    """Facts of the run that every client is told."""

    run: str
    seed: int
    settings: str
    model: str
    most_bytes: int

    def welcome(self, client: int, beat_s: float) -> pb.FromServer:
        """The first answer to a client that may take part. client: its number."""
        return pb.FromServer(
            welcome=pb.Welcome(
                run=self.run,
                client=client,
                seed=self.seed,
                settings=self.settings,
                beat_s=beat_s,
                most_bytes=self.most_bytes,
            )
        )


def find_fault(first: pb.FromClient, identity: Identity | None, model: str) -> tuple[str, str]:
    """Kind of, and reason for turning a client away for good; both empty where there is none."""
    hello = first.hello
    named = first.HasField("hello") and is_name(hello.name)
    if not named or not _INSTANCE.fullmatch(hello.instance):
        return "hello", "the first message must be a hello with a name and an instance"
    if identity is not None and identity.name != hello.name:
        return "name", f"you are {identity.name}, not {hello.name}"
    if identity is not None and identity.role != "client":
        return "name", f"{identity.name} is an operator; take part with a client's keys"
    if hello.model != model:
        return "model", "your model has other layers than the server's; build the same one"
    return "", ""
