"""Writes the page of a report beside its tables."""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from fedpace.core.errors import JournalError
from fedpace.core.host import write_whole
from fedpace.core.journal import Header, read
from fedpace.report.page.details import RunDetails, read_details
from fedpace.report.page.document import page_data
from fedpace.report.page.html import page_html
from fedpace.report.summary import Groups, Summary

PAGE = "report.html"
MOST_BYTES = 1_500_000_000
"""Journals of which a timeline is made: of more it would take more memory than a report should."""


def write_page(
    groups: Groups,
    path: Path,
    targets: Sequence[float],
    journals: Sequence[Path],
    title: str | None = None,
    metric: str | None = None,
    shown: Collection[str] | None = None,
    seen: Callable[[RunDetails], None] | None = None,
) -> None:
    """Write the page about runs by label. journals: among them those of the runs.

    shown: labels that are shown at first, by default all. seen: is given the details of each run, for
    which a journal is read, as they are read.
    """
    known = journals_by_run(journals)

    def details(run: Summary) -> RunDetails | Header | None:
        found = known.get((run.label, run.seed))
        if found is None:
            return None
        place, header = found
        if place.stat().st_size > MOST_BYTES:
            return header
        own = read_details(place, run)
        if seen is not None:
            seen(own)
        return own

    data = page_data(groups, targets, details, title, metric, shown)
    write_whole(path, page_html(data, data["title"]))


def journals_by_run(journals: Sequence[Path]) -> Mapping[tuple[str, int], tuple[Path, Header]]:
    """The journals by label and seed, with their headers; unreadable ones are left out."""
    found = {}
    for path in journals:
        try:
            header, _ = read(path, unfinished=True)
        except JournalError:
            continue
        label = header.run.get("label")
        name = label if isinstance(label, str) and label else header.policy
        found[name, header.context.seed] = path, header
    return found
