"""A limit of influence: a member that answers at once must not be most of what a model learns from.

Of the latest updates no member has more than some times an equal share. What it sends beyond that is
held, and with it the member, who has no other task meanwhile; it is let through as soon as others have
caught up, and after a while in any case, so that nobody is starved by slow company.
"""

from collections import Counter, deque
from collections.abc import Iterator

from fedpace.core.events import Arrived

MOST_HELD_S = 60.0
"""Seconds after which a held update is let through."""
_WINDOW = 10
"""Updates for each member that is there; shares are of the latest so many."""


class InfluenceLimit:
    """Updates that count, and those that wait. times: of an equal share; 0: no limit."""

    def __init__(self, times: float) -> None:
        self._times = times
        self._latest: deque[int] = deque()
        self._counts: Counter[int] = Counter()
        self._held: dict[int, Arrived] = {}

    def note(self, client: int, members: int) -> None:
        """Count an update. members: that are there."""
        self._latest.append(client)
        self._counts[client] += 1
        while len(self._latest) > _WINDOW * max(members, 1):
            self._counts[self._latest.popleft()] -= 1

    def exceeds(self, client: int, members: int) -> bool:
        """True if one more update of this member is more than its share."""
        if not self._times or self._times >= members:
            return False
        share = self._times / members
        return self._counts[client] + 1 > share * max(len(self._latest) + 1, members)

    def hold(self, event: Arrived) -> None:
        """Keep an update that is more than its member's share, until it is released or forgotten."""
        self._held[event.task] = event

    def holds(self, task: int) -> bool:
        return task in self._held

    def forget(self, task: int) -> None:
        """Let go of a held update without its use; one that is unknown is fine."""
        self._held.pop(task, None)

    def next_at(self) -> float | None:
        """When the first that waits is let through in any case."""
        return min((one.at + MOST_HELD_S for one in self._held.values()), default=None)

    def release(self, now: float, members: int) -> Iterator[Arrived]:
        """Updates that may pass now, each counted; in the order in which they came."""
        for task, event in list(self._held.items()):
            if now >= event.at + MOST_HELD_S or not self.exceeds(event.client, members):
                del self._held[task]
                self.note(event.client, members)
                yield event
