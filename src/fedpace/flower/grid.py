"""Messages over Flower's Grid.

Text becomes a ConfigRecord. An array file is the one array of an ArrayRecord, as bytes: Flower cuts it
into chunks, and stores a model once for all nodes that it is sent to. Its own format for arrays is not
used, because `remote.packing` checks what a peer sends before it believes it.
"""

from collections.abc import Sequence
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict  # type: ignore[import-not-found, unused-ignore]

from fedpace.core.errors import PeerError
from fedpace.flower.messages import NodeMessage, NodeReply

_FILE = "arrays"
_FORMAT = "fedpace.arrays"
_TEXT, _JSON = "message", "json"


class FlowerGrid:
    """A Flower Grid as a MessageGrid. Like the Grid, it belongs to one thread."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def nodes(self) -> list[int]:
        return [int(node) for node in self._grid.get_node_ids()]

    def push(self, node: int, kind: str, message: NodeMessage, ttl_s: float) -> str | None:
        sent = Message(to_records(message), dst_node_id=node, message_type=kind, ttl=ttl_s)
        return next(iter(self._grid.push_messages([sent])), None) or None

    def pull(self, ids: Sequence[str]) -> list[NodeReply]:
        return [_reply(message) for message in self._grid.pull_messages(ids)]


def to_records(message: NodeMessage) -> RecordDict:
    content = RecordDict({_TEXT: ConfigRecord({_JSON: message.text})})
    if message.file is not None:
        array = Array(dtype="uint8", shape=(len(message.file),), stype=_FORMAT, data=message.file)
        content[_FILE] = ArrayRecord({_FILE: array})
    return content


def from_records(content: RecordDict) -> NodeMessage:
    """PeerError where it holds arrays that are no array file; what they hold is looked at later."""
    text = content.config_records.get(_TEXT, {}).get(_JSON, "")
    arrays = [array for one in content.array_records.values() for array in one.values()]
    if not isinstance(text, str):
        raise PeerError(f"the text of a message is {text!r}; expected JSON")
    if not arrays:
        return NodeMessage(text)
    if len(arrays) > 1 or arrays[0].stype != _FORMAT:
        kinds = sorted({str(array.stype) for array in arrays})
        raise PeerError(f"there are {len(arrays)} arrays of {kinds}; expected one of {_FORMAT!r}")
    return NodeMessage(text, bytes(arrays[0].data))


def _reply(message: Any) -> NodeReply:
    to = message.metadata.reply_to_message_id
    if message.has_error():
        error = message.error
        return NodeReply(to, None, f"Flower says: {error.reason or 'no reason'} (code {error.code})")
    try:
        return NodeReply(to, from_records(message.content))
    except PeerError as error:
        return NodeReply(to, None, str(error))
