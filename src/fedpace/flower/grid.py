"""Letters as Flower's messages, over its Grid.

Records become ConfigRecords, times a MetricRecord. An array file is the one array of an ArrayRecord,
as bytes: Flower cuts it into chunks, and stores a model once for all nodes that it is sent to. Its own
format for arrays is not used, because `net.arrays` checks what a peer sends before it believes it.
"""

from collections.abc import Sequence
from typing import Any

from flwr.app import (  # type: ignore[import-not-found, unused-ignore]
    Array,
    ArrayRecord,
    ConfigRecord,
    Message,
    MetricRecord,
    RecordDict,
)

from fedpace.core.errors import PeerError
from fedpace.flower.letters import TIMES, Letter, Reply

_FILE = "arrays"
_FORMAT = "fedpace.arrays"


class GridPost:
    """A Flower Grid as a Post. Like the Grid, it belongs to one thread."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def nodes(self) -> list[int]:
        return [int(node) for node in self._grid.get_node_ids()]

    def push(self, node: int, kind: str, letter: Letter, ttl_s: float) -> str | None:
        message = Message(to_records(letter), dst_node_id=node, message_type=kind, ttl=ttl_s)
        return next(iter(self._grid.push_messages([message])), None) or None

    def pull(self, letters: Sequence[str]) -> list[Reply]:
        return [_reply(message) for message in self._grid.pull_messages(letters)]


def to_records(letter: Letter) -> RecordDict:
    content = RecordDict()
    for name, record in letter.records.items():
        values: dict[str, Any] = dict(record)
        content[name] = MetricRecord(values) if name == TIMES else ConfigRecord(values)
    if letter.file is not None:
        array = Array(dtype="uint8", shape=(len(letter.file),), stype=_FORMAT, data=letter.file)
        content[_FILE] = ArrayRecord({_FILE: array})
    return content


def to_letter(content: RecordDict) -> Letter:
    """PeerError where it holds arrays that are no array file; what they hold is looked at later."""
    said: list[tuple[str, Any]] = [*content.config_records.items(), *content.metric_records.items()]
    records: dict[str, dict[str, Any]] = {name: dict(values) for name, values in said}
    arrays = [array for one in content.array_records.values() for array in one.values()]
    if not arrays:
        return Letter(records)
    if len(arrays) > 1 or arrays[0].stype != _FORMAT:
        kinds = sorted({str(array.stype) for array in arrays})
        raise PeerError(f"there are {len(arrays)} arrays of {kinds}; expected one of {_FORMAT!r}")
    return Letter(records, bytes(arrays[0].data))


def _reply(message: Any) -> Reply:
    to = message.metadata.reply_to_message_id
    if message.has_error():
        error = message.error
        return Reply(to, None, f"Flower says: {error.reason or 'no reason'} (code {error.code})")
    try:
        return Reply(to, to_letter(message.content))
    except PeerError as error:
        return Reply(to, None, str(error))
