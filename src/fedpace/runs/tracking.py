"""Shows runs in trackers while they go on, by a process of its own: it cannot slow or stop a run."""

import logging
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from fedpace.core.run import Standing, Watch
from fedpace.report.trackers.settings import check_installed
from fedpace.runs.config import Config
from fedpace.runs.paths import resolve_paths

log = logging.getLogger("fedpace.track")
_LAST_S = 60.0
"""Seconds that the end of a run waits for its trackers."""


class LiveTracking:
    """The trackers of a config, and the process that tells them about runs; nothing where none is set.

    root: the folder of the runs; None: they have none, and cannot be followed. Used as a context: its
    end waits for what is left to be told.
    """

    def __init__(self, config: Config, root: Path | None) -> None:
        self._settings = resolve_paths(config.track, config.folder)
        self._root, self._followed = (root or Path()).absolute(), set[Path]()
        self._process: subprocess.Popen[str] | None = None
        check_installed(self._settings.trackers)
        if root is None and self._settings.trackers:
            log.warning("track.to is set, but a run in memory cannot be followed; give it a folder")

    def start(self) -> None:
        """Start the process, where any tracker is set."""
        if not self._settings.trackers or self._process is not None:
            return
        command = [sys.executable, "-m", "fedpace.report.trackers.process"]
        try:
            self._process = subprocess.Popen(
                [*command, self._settings.to_json(), str(self._root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl-C is for the run, whose end it shall see
            )
        except OSError as error:
            log.warning("trackers are told nothing: %s; the run goes on", error)
            return
        self._log = threading.Thread(target=_pass_on, args=(self._process.stderr,), daemon=True)
        self._log.start()

    def follow(self, folder: Path) -> None:
        """Show a run whose journal has been begun; once more is fine."""
        if self._process is None or self._process.stdin is None or folder in self._followed:
            return
        self._followed.add(folder)
        with suppress(OSError):  # the process is gone, and has said why
            self._process.stdin.write(f"{folder.absolute()}\n")
            self._process.stdin.flush()

    def watches(self, folder: Path) -> tuple[Watch, ...]:
        """What lets a run be followed from its first event on; nothing where no tracker is set."""
        return (TrackingWatch(self, folder),) if self._process is not None else ()

    def hang_up(self) -> None:
        """Let the process tell what is left, and end."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        if self._process is not None:
            try:
                self._process.wait(_LAST_S)
                self._log.join(_LAST_S)
            except subprocess.TimeoutExpired:
                log.warning("trackers are slow; the process %d tells them the rest", self._process.pid)


class TrackingWatch:
    """Tells the tracking once that a run's journal is there."""

    def __init__(self, tracking: LiveTracking, folder: Path) -> None:
        self._tracking, self._folder, self._told = tracking, folder, False

    def __call__(self, standing: Standing) -> None:
        if not self._told:
            self._told = True
            self._tracking.follow(self._folder)


def _pass_on(lines: IO[str]) -> None:
    """Bring what the process has to say into the log of this one."""
    with lines:
        for line in lines:
            if line.strip():
                log.warning("%s", line.strip())
