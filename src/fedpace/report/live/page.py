"""The page of a folder's runs, served as they go on: `fedpace watch`."""

import errno
import json
from importlib import resources
from pathlib import Path
from typing import Any

from fedpace.core.errors import ConfigError
from fedpace.core.journal import Header
from fedpace.report.collection import default_targets, last_report_options
from fedpace.report.live.access import KeyAccess, PageAccess
from fedpace.report.live.feed import LiveFeed
from fedpace.report.live.http import LivePageServer, TlsContext
from fedpace.report.live.runs import FollowedRuns
from fedpace.report.page.details import RunDetails, details_of
from fedpace.report.page.document import page_data
from fedpace.report.page.html import page_html
from fedpace.report.summary import Summary
from fedpace.report.timeline.build import timeline_from


def live_document(runs: FollowedRuns) -> dict[str, Any]:
    """What the page shows of runs as far as they have come."""
    groups, options = runs.groups(), last_report_options(runs.folder)
    targets = options.targets or default_targets(groups, options.metric)
    headers = [run.header for run in runs.runs.values() if run.header is not None]
    name = headers[0].run.get("name") if headers else None

    def details(summary: Summary) -> RunDetails | Header | None:
        run = runs.of(summary)
        if run is None or run.header is None or run.tables is None:
            return None if run is None else run.header
        timeline = timeline_from(run.header, run.tables)
        return details_of(run.header, summary, timeline, run.tested, run.bias())

    title = options.title or (name if isinstance(name, str) else None) or runs.folder.name
    names = client_names(next(iter(runs.runs))) if len(runs.runs) == 1 else {}
    return {**page_data(groups, targets, details, title, options.metric), "names": names}


def client_names(folder: Path) -> dict[str, str]:
    """Names of the clients of a served run by their numbers; none of a simulated one."""
    try:
        found = json.loads((folder / "clients.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    known = enumerate(found if isinstance(found, list) else [])
    return {str(number): name for number, name in known if isinstance(name, str)}


def live_html(title: str) -> bytes:
    """The page, which asks its server for what it shows."""
    script = resources.files("fedpace.report.live") / "assets" / "live.js"
    scripts = [script.read_text(encoding="utf-8")]
    return page_html(None, title, connect=True, scripts=scripts).encode()


def open_page(
    folder: Path,
    host: str,
    port: int | None,
    usual: int = 0,
    *,
    access: PageAccess | None = None,
    tls: TlsContext | None = None,
    title: str | None = None,
) -> LivePageServer:
    """The server of a folder's page, to be started; ConfigError where it cannot listen.

    port: None for the usual one, or any that is free where that is taken. access: who may look, by
    default whoever has the key in the link.
    """
    feed = LiveFeed(FollowedRuns(folder), live_document)
    html = live_html(title or folder.resolve().name)
    ports = [usual, 0] if port is None else [port]
    for place, one in enumerate(ports):
        try:
            return LivePageServer((host, one), feed, html, access or KeyAccess(), tls=tls)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or place + 1 == len(ports):
                raise ConfigError(
                    f"{host}:{one} cannot be listened on: {error.strerror or error}; give another "
                    "address"
                ) from error
    raise AssertionError("one of the ports is tried last")
