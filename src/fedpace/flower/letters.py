"""What travels between ServerApp and ClientApp: records of plain values, and an array file.

Orders and reports are messages of federation.proto, field by field, so that both transports say the
same. Nothing here needs Flower; `grid` turns letters into its messages.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from fedpace.core.errors import PeerError

HELLO, PROBE, TRAIN = "query.hello", "query.probe", "train"
"""Kinds of letters to a node: who are you, how fast are you, do this work."""
TIMES = "times"
"""The record of what a node has measured."""

Value = bool | int | float | str
Record = Mapping[str, Value]
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Letter:
    """file: of `net.arrays`: a model on its way out, an update on its way back."""

    records: Mapping[str, Record]
    file: bytes | None = None

    def read(self, name: str, kind: type[M]) -> M:
        """The message that a record holds; PeerError where it holds none."""
        if name not in self.records:
            raise PeerError(f"there is no {name}; there are {', '.join(self.records) or 'no records'}")
        try:
            return kind(**self.records[name])
        except (TypeError, ValueError) as error:
            raise PeerError(f"{name} cannot be read: {error}") from None

    @property
    def busy_s(self) -> float:
        """Seconds that a node says it has trained."""
        busy_s = self.records.get(TIMES, {}).get("busy_s", 0.0)
        if not isinstance(busy_s, int | float) or not (math.isfinite(busy_s) and busy_s >= 0):
            raise PeerError(f"busy_s is {busy_s!r}; expected seconds")
        return float(busy_s)


@dataclass(frozen=True, slots=True)
class Reply:
    """to: the letter that it answers. Without a letter of its own, error says why."""

    to: str
    letter: Letter | None
    error: str = ""


class Post(Protocol):
    """The way to nodes and back; a Flower Grid, or something that acts like one.

    push: what the letter is known by, None where it was not taken; pull: replies that have come since.
    """

    def nodes(self) -> Sequence[int]: ...
    def push(self, node: int, kind: str, letter: Letter, ttl_s: float) -> str | None: ...
    def pull(self, letters: Sequence[str]) -> Sequence[Reply]: ...


def record(message: Message) -> dict[str, Value]:
    """The fields that are set and hold one value."""
    return {
        field.name: value
        for field, value in message.ListFields()
        if field.message_type is None and isinstance(value, bool | int | float | str)
    }
