"""Messages between ServerApp and ClientApp: JSON of `remote.messages`, and an array file.

Nothing here needs Flower; `grid` turns them into its messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedpace.core.events import Record
from fedpace.remote.messages import to_json

HELLO, PROBE, TRAIN = "query.hello", "query.probe", "train"
"""Types of messages to a node: who are you, how fast are you, do this work."""


@dataclass(frozen=True, slots=True)
class NodeMessage:
    """text: JSON; file: a model on its way out, an update on its way back (`remote.packing`)."""

    text: str = ""
    file: bytes | None = None

    @classmethod
    def of(cls, message: Record, file: bytes | None = None) -> "NodeMessage":
        return cls(to_json(message), file)


@dataclass(frozen=True, slots=True)
class NodeReply:
    """An answer. to: the id of what it answers; message: None where error says why there is none."""

    to: str
    message: NodeMessage | None
    error: str = ""


class MessageGrid(Protocol):
    """Carries messages to nodes and back: a Flower Grid, or something that acts like one.

    push: the id of a message, None where it was not taken; pull: replies that have come since.
    """

    def nodes(self) -> Sequence[int]: ...
    def push(self, node: int, kind: str, message: NodeMessage, ttl_s: float) -> str | None: ...
    def pull(self, ids: Sequence[str]) -> Sequence[NodeReply]: ...
