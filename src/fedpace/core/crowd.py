"""Sets of clients that may be a million."""


class Crowd:
    """A set of clients, numbered from 0 without large gaps: one byte for each up to the highest.

    A Python set takes sixty times as much, and its members lie all over memory.
    """

    __slots__ = ("_marks",)

    def __init__(self) -> None:
        self._marks = bytearray()

    def __contains__(self, client: int) -> bool:
        try:
            return self._marks[client] == 1 and client >= 0
        except (IndexError, TypeError):
            return False

    def add(self, client: int) -> None:
        if client >= len(self._marks):
            self._marks.extend(bytes(client + 1 - len(self._marks)))
        self._marks[client] = 1

    def discard(self, client: int) -> None:
        if client in self:
            self._marks[client] = 0
