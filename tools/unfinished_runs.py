"""Runs of a study that are under way, each in a folder: a killed one goes on from its last snapshot.

The folders can be taken to another machine with the results. Each is deleted when its run is over;
those of runs that are not wanted any more stay.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from typing import Any

from fedpace.core.errors import JournalError
from fedpace.core.host import write_whole
from fedpace.core.run import Standing
from fedpace.report.summary import Summary
from fedpace.runs.config import Config
from fedpace.runs.simulate import simulate_run

SNAPSHOT_EVERY_S = 120.0
NOTED_EVERY_S = 5.0


@dataclass
class UnfinishedRun:
    """A run in a folder. spent_s: seconds of its earlier parts, as far as they were noted."""

    folder: Path
    spent_s: float = field(init=False)
    _began: float = field(default_factory=time.monotonic)
    _noted: float = 0.0

    def __post_init__(self) -> None:
        try:
            self.spent_s = float(self._seconds.read_text())
        except (OSError, ValueError):
            self.spent_s = 0.0

    def carry_out(self, config: Config, **given: Any) -> Summary:
        """Begin the run, or go on with it if its code and files are still good for that."""
        try:
            return self._go_on(config, **given)
        except (JournalError, KeyError):  # a key: snapshots of earlier code may lack one
            if not self.folder.exists():
                raise
            self.delete()
            self.spent_s = 0.0
            return self._go_on(config, **given)

    def _go_on(self, config: Config, **given: Any) -> Summary:
        result = simulate_run(
            config,
            out=self.folder,
            resume=True,
            snapshot_every_s=SNAPSHOT_EVERY_S,
            watches=(self._note,),
            **given,
        )
        return result.summary

    def delete(self) -> None:
        """Delete what there is of the run, after its result is kept."""
        rmtree(self.folder, ignore_errors=True)

    @property
    def _seconds(self) -> Path:
        return self.folder / "seconds.txt"

    def _note(self, _: Standing) -> None:
        spent = time.monotonic() - self._began
        if spent - self._noted > NOTED_EVERY_S:
            self._noted = spent
            write_whole(self._seconds, f"{self.spent_s + spent}\n")
