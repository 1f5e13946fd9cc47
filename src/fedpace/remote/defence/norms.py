"""Bounds of updates' norms, relative to what members have sent lately.

Every member counts once, with the last update that it claimed of a part of the model, used or not: so a
minority can move the median neither by sending often nor by sending much, and bounds that are too tight
for everybody widen by themselves. Until enough members are known, an update may be as many times as
large as the model itself; nobody is blamed by that guess.
"""

import statistics
from collections.abc import Sequence
from typing import Any

from fedpace.learn.server.checks import UnfitNumbers, UpdateNorms

ENOUGH = 3
"""Members without whom there is no median to speak of: one of two could be anything."""
RECENT = 100
"""Members that count: those who were heard last."""

Part = tuple[int, float | None]
"""Depth and width of the part of a model that an update carries."""


class GuessedBound(UnfitNumbers):
    """Numbers over a bound that was guessed from the model, before there were others to compare."""


class NormGuard:
    """The last norms of members. factor: 0: no relative bound; bound: of deltas, whatever others do."""

    def __init__(self, factor: float = 0.0, bound: float | None = None) -> None:
        self._factor, self._bound = factor, bound
        self._known: dict[int, dict[Part, tuple[float, float]]] = {}
        """Member -> part -> norms of deltas and of changed buffers; who was heard last is last."""

    def note(self, client: int, norms: UpdateNorms) -> None:
        """Remember what a member has claimed."""
        own = self._known.pop(client, {})
        own[norms.depth, norms.width] = norms.params, norms.buffers
        self._known[client] = own
        if len(self._known) > RECENT:
            del self._known[next(iter(self._known))]

    def check(self, task: int, norms: UpdateNorms, members: int) -> None:
        """Refuse an update that is too large, by UnfitNumbers; it has been noted before.

        members: that are there; where they are few, all that there are are enough.
        """
        if self._bound is not None and norms.params > self._bound:
            raise UnfitNumbers(
                f"update of task {task} has norm {norms.params:.6g}; at most {self._bound:g} is allowed"
            )
        if not self._factor:
            return
        enough = min(ENOUGH, members)
        found = self._claims((norms.depth, norms.width), enough)
        for place, what, norm, scale in (
            (0, "deltas", norms.params, norms.params_scale),
            (1, "changed buffers", norms.buffers, norms.buffers_scale),
        ):
            if len(found) < enough:
                if norm > self._factor * scale:
                    raise GuessedBound(
                        f"update of task {task} has {what} of norm {norm:.6g}; at first at most "
                        f"{self._factor:g} times the model's {scale:.6g} are allowed"
                    )
                continue
            # Where most hardly move, a hundredth of the model is not much either.
            usual = max(statistics.median_low([one[place] for one in found]), 0.01 * scale)
            if norm > self._factor * usual:
                raise UnfitNumbers(
                    f"update of task {task} has {what} of norm {norm:.6g}; the median of {len(found)} "
                    f"members is {usual:.6g}, and at most {self._factor:g} times that is allowed"
                )

    def _claims(self, part: Part, enough: int) -> Sequence[tuple[float, float]]:
        """Norms of each member for a part, or for any where too few are known for this one."""
        own = [parts[part] for parts in self._known.values() if part in parts]
        if len(own) >= enough:
            return own
        return [
            (max(one for one, _ in parts.values()), max(one for _, one in parts.values()))
            for parts in self._known.values()
        ]

    def state(self) -> list[list[Any]]:
        """Plain values for a snapshot."""
        return [
            [client, depth, width, *norms]
            for client, parts in self._known.items()
            for (depth, width), norms in parts.items()
        ]

    def load(self, state: list[list[Any]]) -> None:
        """Become the guard whose `state()` this was."""
        self._known = {}
        for client, depth, width, params, buffers in state:
            self._known.setdefault(client, {})[depth, width] = params, buffers
