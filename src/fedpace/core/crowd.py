"""Sets of clients that may be a million."""


class Crowd:
    """A set of clients, numbered from 0 without large gaps: one byte for each up to the highest.

    A Python set takes sixty times as much, and its members lie all over memory.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks = bytearray()

    def has(self, client: int) -> bool:
        """Whether the client is in it; `in` would take twice as long to come here."""
        try:
            return self._marks[client] == 1 and client >= 0
        except (IndexError, TypeError):
            return False

    def add(self, client: int) -> None:
        if client >= len(self._marks):
            self._marks.extend(bytes(client + 1 - len(self._marks)))
        self._marks[client] = 1

    def discard(self, client: int) -> None:
        if self.has(client):
            self._marks[client] = 0
