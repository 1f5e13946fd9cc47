"""The timelines of a page: as many as there is room for, the larger ones thinned to their share."""

from typing import Any

from fedpace.report.page.details import RunDetails
from fedpace.report.page.lanes import MOST_SPANS, pack_lanes

LEAST_SPANS = 50_000
"""Room that a larger timeline needs; with less it is left out."""


class PageTimelines:
    """Timelines that have found room on the page."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []
        self._left_out = 0
        self._room = MOST_SPANS

    def add(self, place: int, details: RunDetails | None, sharing: int) -> None:
        """Take in the timeline of a run, None for one that is too large to be read.

        sharing: runs, this one among them, that have the same right to what room is left.
        """
        room = self._room // max(sharing, 1)
        if details is None or (len(details.timeline.spans) > room and room < LEAST_SPANS):
            self._left_out += 1
            return
        packed = pack_lanes(details.timeline, details.speeds, room)
        self._room -= packed.spans
        self._entries.append({"run": place, **packed.entry})

    def parts(self) -> dict[str, Any]:
        """The timelines, and what is said where some are left out."""
        entries = sorted(self._entries, key=lambda one: int(one["run"]))
        word = ""
        if self._left_out:
            more = " more" if entries else ""
            runs = f"{self._left_out}{more} run{'s' * (self._left_out > 1)}"
            word = f"Timelines of {runs} are left out, to keep this page small. "
            word += "The page of a run's own folder has room for its timeline." if entries else ""
        for entry in entries:
            entry["words"] += [word] * bool(word)
        return {"timelines": entries, "no_timeline": word}
