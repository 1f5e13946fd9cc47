"""The process that follows runs and shows them in trackers, while they go on in others.

`python -m fedpace.report.trackers.process SETTINGS ROOT` reads folders of runs from its standard input,
one a line, and follows their journals. The end of its input, also that by a crash of the process at the
other side, is the end of those runs: it tells what is left, and ends.
"""

import logging
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from fedpace.core.errors import FedpaceError
from fedpace.report.trackers.exporter import RunExport, Trackers
from fedpace.report.trackers.settings import TrackSettings

log = logging.getLogger("fedpace.track")
_LOOK_S = 1.0
"""Seconds from one look at the journals to the next."""
_LAST_S = 120.0
"""Seconds that it may take to tell what is left."""


class Follower:
    """Runs that are followed; those of which nothing can be read are told of and left alone."""

    def __init__(self, trackers: Trackers) -> None:
        self._trackers, self._exports = trackers, dict[Path, RunExport]()

    def add(self, folder: Path) -> None:
        """Follow a run from now on; once more is fine."""
        if folder not in self._exports:
            self._exports[folder] = RunExport(folder, self._trackers)

    def look(self) -> None:
        """Tell the trackers what is new."""
        for export in self._exports.values():
            try:
                export.advance()
            except (FedpaceError, OSError) as error:
                log.warning("%s", error)
                export.end()

    def finish(self) -> None:
        """Tell what is left: the runs are over, or nobody goes on with them now."""
        self.look()
        for export in self._exports.values():
            export.end()


def _read_folders(told: "SimpleQueue[str | None]") -> None:
    for line in sys.stdin:
        told.put(line.rstrip("\n"))
    told.put(None)


def main() -> None:
    """Follow runs until the input ends."""
    _keep_errors_for_ourselves()
    try:
        _follow()
    except Exception as error:
        log.warning("trackers are told no more: %s: %s", type(error).__name__, error)
        os._exit(1)
    os._exit(0)  # a package's own threads may wait for a network


def _keep_errors_for_ourselves() -> None:
    """Let only our log go to the error output: packages say much there, also where all is well."""
    ours = os.fdopen(os.dup(2), "w", buffering=1)
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)
    log.addHandler(logging.StreamHandler(ours))
    log.propagate = False
    logging.raiseExceptions = False  # whoever read the log may be gone


def _follow() -> None:
    with suppress(OSError, AttributeError):
        os.nice(10)  # the runs come first
    settings = TrackSettings.from_json(sys.argv[1])
    told: SimpleQueue[str | None] = SimpleQueue()
    threading.Thread(target=_read_folders, args=(told,), daemon=True).start()
    follower = Follower(Trackers(settings, Path(sys.argv[2])))
    going_on = True
    while going_on:
        try:
            folder = told.get(timeout=_LOOK_S)
        except Empty:
            follower.look()
            continue
        if folder is None:
            going_on = False
        else:
            follower.add(Path(folder))
    last = threading.Timer(_LAST_S, _give_up)
    last.daemon = True
    last.start()
    follower.finish()


def _give_up() -> None:
    log.warning("trackers have not taken what is left within %g s; `fedpace export` tells it", _LAST_S)
    os._exit(1)


if __name__ == "__main__":
    main()
